// StringToHashBucket and its Fast and Strong variants: hash each string to a number below num_buckets.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/hashes.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <typename Hash>
Status HashAll(KernelContext& ctx, int64_t buckets, Hash&& hash) {
  const Tensor& input = ctx.input(0);
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
  const std::string* from = input.data<std::string>();
  int64_t* to = out->data<int64_t>();
  ctx.ParallelFor(input.num_elements(), 4 * kStringGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      to[i] = static_cast<int64_t>(hash(from[i]) % static_cast<uint64_t>(buckets));
    }
  });
  return absl::OkStatus();
}

class StringToHashBucketKernel : public Kernel {
 public:
  explicit StringToHashBucketKernel(KernelInit& init) { init.Attr("num_buckets", &buckets_); }
  Status Compute(KernelContext& ctx) override {
    return HashAll(ctx, buckets_, [](const std::string& s) { return MurmurHash64(s, 0xDECAFCAFFE); });
  }

 private:
  int64_t buckets_ = 1;
};

class StringToHashBucketFastKernel : public Kernel {
 public:
  explicit StringToHashBucketFastKernel(KernelInit& init) { init.Attr("num_buckets", &buckets_); }
  Status Compute(KernelContext& ctx) override {
    return HashAll(ctx, buckets_, [](const std::string& s) { return FarmFingerprint64(s); });
  }

 private:
  int64_t buckets_ = 1;
};

class StringToHashBucketStrongKernel : public Kernel {
 public:
  explicit StringToHashBucketStrongKernel(KernelInit& init) {
    init.Attr("num_buckets", &buckets_);
    init.Attr("key", &key_);
    if (key_.size() != 2) init.Fail(InvalidArgument("Key must have 2 elements, not ", key_.size()));
  }
  Status Compute(KernelContext& ctx) override {
    const auto key0 = static_cast<uint64_t>(key_[0]), key1 = static_cast<uint64_t>(key_[1]);
    return HashAll(ctx, buckets_, [=](const std::string& s) { return SipHash(key0, key1, s); });
  }

 private:
  int64_t buckets_ = 1;
  std::vector<int64_t> key_;
};

// Hashes the decimal digits of integers. Client-side optimisers fuse AsString and StringToHashBucketFast into it.
class TensorToHashBucketFastKernel : public Kernel {
 public:
  explicit TensorToHashBucketFastKernel(KernelInit& init) { init.Attr("num_buckets", &buckets_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    int64_t* to = out->data<int64_t>();
    DispatchType(IntTypes(), input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = input.data<T>();
      for (int64_t i = 0, n = input.num_elements(); i < n; ++i) {
        const absl::AlphaNum digits(static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(from[i]));
        to[i] = static_cast<int64_t>(FarmFingerprint64(digits.Piece()) % static_cast<uint64_t>(buckets_));
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t buckets_ = 1;
};

MILLRACE_OP(StringToHashBucket)
    .Input("string_tensor: string")
    .Output("output: int64")
    .Attr("num_buckets: int >= 1")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Hashes each string to a bucket.");
MILLRACE_OP(StringToHashBucketFast)
    .Input("input: string")
    .Output("output: int64")
    .Attr("num_buckets: int >= 1")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Hashes each string to a bucket by a fast hash.");
MILLRACE_OP(StringToHashBucketStrong)
    .Input("input: string")
    .Output("output: int64")
    .Attr("num_buckets: int >= 1")
    .Attr("key: list(int)")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Hashes each string to a bucket by a strong keyed hash.");
MILLRACE_OP(_TensorToHashBucketFast)
    .Input("input: T")
    .Output("output: int64")
    .Attr("T: {int8, uint8, int16, uint16, int32, uint32, int64, uint64}")
    .Attr("num_buckets: int >= 1")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Hashes each integer to a bucket by a fast hash of its digits.");
MILLRACE_KERNEL(_TensorToHashBucketFast, kCpu, TensorToHashBucketFastKernel);
MILLRACE_KERNEL(StringToHashBucket, kCpu, StringToHashBucketKernel);
MILLRACE_KERNEL(StringToHashBucketFast, kCpu, StringToHashBucketFastKernel);
MILLRACE_KERNEL(StringToHashBucketStrong, kCpu, StringToHashBucketStrongKernel);

}  // namespace
}  // namespace millrace
