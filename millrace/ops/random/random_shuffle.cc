// RandomShuffle, StatelessShuffle: the rows of a tensor in random order.
#include <algorithm>
#include <numeric>
#include <vector>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace::random {
namespace {

// Fisher-Yates: swaps each of n elements with a random one at or after it.
template <typename T>
void Shuffle(T* elements, int64_t n, Philox stream) {
  constexpr int64_t kGroups = 64;
  uint32_t numbers[kGroups * kNumbersPerGroup];
  for (int64_t begin = 0; begin + 1 < n; begin += kGroups * kNumbersPerGroup) {
    const int64_t count = std::min(kGroups * kNumbersPerGroup, n - 1 - begin);
    stream.Fill(numbers, (count + kNumbersPerGroup - 1) / kNumbersPerGroup);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = begin + k;
      std::swap(elements[i], elements[i + numbers[k] % static_cast<uint32_t>(n - i)]);
    }
  }
}

class RandomShuffleKernel : public Kernel {
 public:
  RandomShuffleKernel(KernelInit& init, SourceKind source) : source_(init, source) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& value = ctx.input(0);
    const int64_t rows = value.rank() == 0 ? 1 : value.dim(0);
    if (rows <= 1 || value.num_elements() <= 1) {
      ctx.SetOutput(0, value);
      return absl::OkStatus();
    }
    if (rows > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("cannot shuffle more than 2^31 rows, and there are ", rows);
    }
    const uint64_t numbers = static_cast<uint64_t>(rows - 1);
    MR_ASSIGN_OR_RETURN(const Philox stream, source_.Take(ctx, 1, (numbers + kNumbersPerGroup - 1) / kNumbersPerGroup));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, value.shape()));
    const int64_t row_size = value.num_elements() / rows;
    const bool known = DispatchMove(value.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = output->raw<T>();
      if (row_size == 1) {
        std::copy_n(value.raw<T>(), rows, to);
        Shuffle(to, rows, stream);
        return;
      }
      std::vector<int32_t> order(rows);
      std::iota(order.begin(), order.end(), 0);
      Shuffle(order.data(), rows, stream);
      for (const int64_t row : order) {
        const T* const from = value.raw<T>() + row * row_size;
        to = std::copy(from, from + row_size, to);
      }
    });
    return known ? absl::OkStatus() : Unimplemented("shuffling elements of type ", DTypeName(value.dtype()));
  }

 private:
  RandomSource source_;
};

template <SourceKind source>
class RandomShuffleKernelOf : public RandomShuffleKernel {
 public:
  explicit RandomShuffleKernelOf(KernelInit& init) : RandomShuffleKernel(init, source) {}
};

MILLRACE_OP(RandomShuffle)
    .Input("value: T")
    .Output("output: T")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("T: type")
    .Stateful()
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("The rows of a tensor in random order.");

MILLRACE_OP(StatelessShuffle)
    .Input("value: T")
    .Input("key: uint64")
    .Input("counter: uint64")
    .Input("alg: int32")
    .Output("output: T")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("The rows of a tensor in an order determined by key and counter.");

MILLRACE_KERNEL(RandomShuffle, kCpu, RandomShuffleKernelOf<SourceKind::kSeedAttrs>);
MILLRACE_KERNEL(StatelessShuffle, kCpu, RandomShuffleKernelOf<SourceKind::kKeyInputs>);

}  // namespace
}  // namespace millrace::random
