// Bucketize.
#include <algorithm>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

using BucketTypes = Types<float, double, int32_t, int64_t>;

class BucketizeKernel : public Kernel {
 public:
  explicit BucketizeKernel(KernelInit& init) {
    init.Attr("boundaries", &boundaries_);
    if (!std::is_sorted(boundaries_.begin(), boundaries_.end())) {
      init.Fail(InvalidArgument("Expected sorted boundaries"));
    }
    if (!DispatchType(BucketTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, input.shape()));
    int32_t* out = output->data<int32_t>();
    DispatchType(BucketTypes{}, input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* x = input.data<T>();
      ctx.ParallelFor(input.num_elements(), kCostlyGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          out[i] = BucketOf(x[i]);
        }
      });
    });
    return absl::OkStatus();
  }

 private:
  // The number of boundaries not greater than x; all of them for NaN. A branch-free binary search.
  template <typename T>
  int32_t BucketOf(T x) const {
    const float* at = boundaries_.data();
    size_t left = boundaries_.size();
    while (left > 1) {
      const size_t half = left / 2;
      at += x < at[half - 1] ? 0 : half;
      left -= half;
    }
    return static_cast<int32_t>(at - boundaries_.data()) + (left == 1 && !(x < *at));
  }

  std::vector<float> boundaries_;
};

}  // namespace

MILLRACE_OP(Bucketize)
    .Input("input: T")
    .Output("output: int32")
    .Attr("T: {int32, int64, float, double}")
    .Attr("boundaries: list(float)")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("The index of the bucket, given by boundaries, of each element");

MILLRACE_KERNEL(Bucketize, kCpu, BucketizeKernel);

}  // namespace millrace
