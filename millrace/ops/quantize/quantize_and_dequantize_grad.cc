// QuantizeAndDequantizeV4Grad: the gradient where the input is in the range, and none for the range itself.
#include <algorithm>

#include "millrace/graph/op_schema.h"
#include "millrace/ops/quantize/ranges.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class QuantizeAndDequantizeV4GradKernel : public Kernel {
 public:
  explicit QuantizeAndDequantizeV4GradKernel(KernelInit& init) {
    init.Attr("axis", &axis_);
    if (!DispatchType(Types<float, double>(), init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
    if (axis_ < -1) init.Fail(InvalidArgument("axis should be at least -1, got ", axis_));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor &dy = ctx.input(0), &x = ctx.input(1);
    if (dy.shape() != x.shape()) {
      return InvalidArgument("gradient and input must be the same size, but have shapes ", dy.shape().ToString(),
                             " and ", x.shape().ToString());
    }
    if (axis_ >= x.rank()) {
      return InvalidArgument("Axis should be -1 or 0 or a positive value less than ", x.rank(),
                             " but given axis value was ", axis_);
    }
    const RangeSlices slices = RangeSlices::Of(x.shape(), axis_);
    for (int i = 2; i <= 3; ++i) {
      const Tensor& range = ctx.input(i);
      if (axis_ == -1 ? range.rank() == 0 : range.rank() == 1 && range.dim(0) == slices.count) continue;
      return InvalidArgument(
          i == 2 ? "input_min" : "input_max", " must be ",
          axis_ == -1 ? "a scalar if axis is unspecified" : absl::StrCat("a vector of ", slices.count, " elements"),
          ", but has shape ", range.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, x.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * dmin, ctx.AllocateOutput(1, ctx.input(2).shape()));
    MR_ASSIGN_OR_RETURN(Tensor * dmax, ctx.AllocateOutput(2, ctx.input(3).shape()));
    DispatchType(Types<float, double>(), x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T *low = ctx.input(2).data<T>(), *high = ctx.input(3).data<T>();
      const T *from = x.data<T>(), *gradient = dy.data<T>();
      T* to = dx->data<T>();
      slices.ForEach(ctx, [&](int64_t s, int64_t begin, int64_t n) {
        for (int64_t i = begin; i < begin + n; ++i) {
          to[i] = gradient[i] * (from[i] >= low[s] && from[i] <= high[s] ? T(1) : T(0));
        }
      });
      std::fill_n(dmin->data<T>(), dmin->num_elements(), T(0));
      std::fill_n(dmax->data<T>(), dmax->num_elements(), T(0));
    });
    return absl::OkStatus();
  }

 private:
  int64_t axis_ = -1;
};

Status GradShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t axis, c.Attr<int64_t>("axis"));
  MR_ASSIGN_OR_RETURN(const PartialShape merged, c.input(0).MergeWith(c.input(1)));
  MR_ASSIGN_OR_RETURN(const PartialShape range, RangeShape(c, axis, 2, 3));
  c.set_output(0, merged);
  c.set_output(1, range);
  c.set_output(2, range);
  return absl::OkStatus();
}

MILLRACE_OP(QuantizeAndDequantizeV4Grad)
    .Summary("The gradient of QuantizeAndDequantizeV4.")
    .Input("gradients: T")
    .Input("input: T")
    .Input("input_min: T")
    .Input("input_max: T")
    .Output("input_backprop: T")
    .Output("input_min_backprop: T")
    .Output("input_max_backprop: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("axis: int = -1")
    .Shape(GradShape)
    .NotDifferentiable();
MILLRACE_KERNEL(QuantizeAndDequantizeV4Grad, kCpu, QuantizeAndDequantizeV4GradKernel);

}  // namespace
}  // namespace millrace
