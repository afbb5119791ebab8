// RandomIndexShuffle: the image of an index under a permutation determined by a seed.
//
// A permutation of the smallest power of four that covers the range (at least 2^16) is iterated from the index until
// the result is in the range (cycle walking). It is a Feistel network with the round function and key schedule of the
// Simon cipher, in words of half the block's bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace::random {
namespace {

constexpr int64_t kMaxRounds = 1024;
using Key = std::array<uint32_t, 3>;
using IndexIntTypes = Types<int32_t, uint32_t, int64_t, uint64_t>;

class Permutation {
 public:
  Permutation(const Key& key, uint64_t max_index, int64_t rounds) : max_index_(max_index) {
    const int needed = static_cast<int>(std::ceil(std::log2(static_cast<double>(std::max<uint64_t>(max_index, 1)))));
    bits_ = std::max(needed + needed % 2, 16) / 2;
    mask_ = (uint64_t{1} << bits_) - 1;
    for (uint32_t part : key) keys_.push_back(part & mask_);
    uint64_t constants = 0x7369f885192c0ef5u & mask_;
    for (int64_t i = 3; i < rounds; ++i) {
      const uint64_t last = keys_[static_cast<size_t>(i) - 1];
      keys_.push_back((0xfffffffcu & mask_) ^ (constants & 1) ^ keys_[static_cast<size_t>(i) - 3] ^
                      Left(last, bits_ - 3) ^ Left(last, bits_ - 4));
      constants >>= 1;
    }
  }

  uint64_t operator()(uint64_t index) const {
    if (max_index_ == 0) return 0;
    // Terminates, because a cycle returns to its start at the latest.
    do {
      index = Encrypt(index);
    } while (index > max_index_);
    return index;
  }

 private:
  uint64_t Left(uint64_t x, int by) const { return ((x << by) | (x >> (bits_ - by))) & mask_; }
  uint64_t Mix(uint64_t x) const { return (Left(x, 1) & (bits_ == 8 ? x : Left(x, 8))) ^ Left(x, 2); }
  uint64_t Encrypt(uint64_t value) const {
    uint64_t left = (value >> bits_) & mask_, right = value & mask_;
    for (size_t i = 0; i + 1 < keys_.size(); i += 2) {
      left ^= Mix(right) ^ keys_[i];
      right ^= Mix(left) ^ keys_[i + 1];
    }
    return (left << bits_) | right;
  }

  const uint64_t max_index_;
  int bits_ = 8;  // of a word
  uint64_t mask_ = 0;
  std::vector<uint64_t> keys_;
};

class RandomIndexShuffleKernel : public Kernel {
 public:
  explicit RandomIndexShuffleKernel(KernelInit& init) {
    init.Attr("rounds", &rounds_);
    if (rounds_ < 4 || rounds_ > kMaxRounds || rounds_ % 2 != 0) {
      init.Fail(InvalidArgument("rounds must be an even number from 4 to ", kMaxRounds, ", got ", rounds_));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor &index = ctx.input(0), &seed = ctx.input(1), &max_index = ctx.input(2);
    const bool one_index = index.rank() == 0, one_max = max_index.rank() == 0;
    if (index.rank() > 1)
      return InvalidArgument("Index must be a scalar or vector, but has shape ", index.shape().ToString());
    const bool one_seed = seed.rank() == 1 && seed.dim(0) == 3;
    if (!one_seed && !(seed.rank() == 2 && seed.dim(1) == 3)) {
      return InvalidArgument("Seed must be a vector of size [3] or a matrix of size [n, 3] but has shape ",
                             seed.shape().ToString());
    }
    if (max_index.rank() > 1) {
      return InvalidArgument("Maxval must be a scalar or a vector of size [n] but has shape ",
                             max_index.shape().ToString());
    }
    int64_t n = 1;
    if (!one_index)
      n = index.dim(0);
    else if (!one_seed)
      n = seed.dim(0);
    else if (!one_max)
      n = max_index.dim(0);
    if ((!one_seed && seed.dim(0) != n) || (!one_max && max_index.dim(0) != n)) {
      return InvalidArgument("index, seed and max_index must be of one size, but have shapes ",
                             index.shape().ToString(), ", ", seed.shape().ToString(), " and ",
                             max_index.shape().ToString());
    }
    const bool scalar = one_index && one_seed && one_max;
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, scalar ? Shape() : Shape({n})));
    Status status;
    DispatchType(IndexIntTypes(), index.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n && status.ok(); ++i) {
        status = One<T>(index.data<T>()[one_index ? 0 : i], SeedAt(seed, one_seed ? 0 : i),
                        max_index.data<T>()[one_max ? 0 : i], out->data<T>() + i);
      }
    });
    return status;
  }

 private:
  static Key SeedAt(const Tensor& seed, int64_t row) {
    Key key{};
    DispatchType(IndexIntTypes(), seed.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (size_t k = 0; k < 3; ++k) key[k] = static_cast<uint32_t>(seed.data<T>()[row * 3 + static_cast<int64_t>(k)]);
    });
    return key;
  }
  template <typename T>
  Status One(T index, const Key& key, T max_index, T* out) const {
    if constexpr (std::is_signed_v<T>) {
      if (index < 0) return InvalidArgument("index must be >= 0 but was ", index);
    }
    if (max_index < index) return InvalidArgument("max_index must be >= index, but ", max_index, " < ", index);
    *out = static_cast<T>(Permutation(key, static_cast<uint64_t>(max_index), rounds_)(static_cast<uint64_t>(index)));
    return absl::OkStatus();
  }

  int64_t rounds_ = 4;
};

Status IndexShuffleShape(ShapeContext& c) {
  const PartialShape &index = c.input(0), &seed = c.input(1), &max_index = c.input(2);
  if (seed.known_rank() && (seed.rank() < 1 || seed.rank() > 2)) {
    return InvalidArgument("Seed must be a vector or a matrix but is of rank ", seed.rank());
  }
  if (!index.known_rank() || !seed.known_rank() || !max_index.known_rank()) return absl::OkStatus();
  if (index.rank() > 1 || max_index.rank() > 1) {
    return InvalidArgument("index and max_index must be scalars or vectors but have shapes ", index.ToString(), " and ",
                           max_index.ToString());
  }
  const bool scalar = index.rank() == 0 && seed.rank() == 1 && max_index.rank() == 0;
  const int64_t n = index.rank() == 1 ? index.dim(0) : seed.rank() == 2 ? seed.dim(0) : scalar ? 0 : max_index.dim(0);
  c.set_output(0, scalar ? PartialShape::Scalar() : PartialShape({n}));
  return absl::OkStatus();
}

MILLRACE_OP(RandomIndexShuffle)
    .Summary("The image of an index under a random permutation of [0, max_index], determined by the seed.")
    .Input("index: dtype")
    .Input("seed: Tseed")
    .Input("max_index: dtype")
    .Output("output: dtype")
    .Attr("rounds: int = 4")
    .Attr("dtype: {int32, uint32, int64, uint64}")
    .Attr("Tseed: {int32, uint32, int64, uint64}")
    .Shape(IndexShuffleShape)
    .NotDifferentiable();
MILLRACE_KERNEL(RandomIndexShuffle, kCpu, RandomIndexShuffleKernel);

}  // namespace
}  // namespace millrace::random
