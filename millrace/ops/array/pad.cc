// Pad and PadV2: a border of one value.
#include <algorithm>
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/paddings.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

class PadKernel : public Kernel {
 public:
  explicit PadKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Paddings paddings, ReadPaddings(ctx.input(1), input.rank()));
    MR_ASSIGN_OR_RETURN(const Shape shape, PaddedShape(input.shape(), paddings));
    if (ctx.num_inputs() > 2 && ctx.input(2).rank() != 0) {
      return InvalidArgument("constant_values must be a scalar. Found: ", ctx.input(2).shape().ToString());
    }
    if (shape == input.shape()) {
      ctx.SetOutput(0, input);
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    FillWith(ctx, ctx.num_inputs() > 2 ? &ctx.input(2) : nullptr, out);
    const auto from = RowMajorStrides(input.shape().dims());
    const auto to = RowMajorStrides(shape.dims());
    CopyBox box;
    int64_t offset = 0;
    for (int i = 0; i < input.rank(); ++i) {
      box.Add(input.dim(i), from[i], to[i]);
      offset += paddings[i].before * to[i];
    }
    return StridedCopy(ctx, input.dtype(), std::move(box), input.raw_data(), 0, out->raw_data(), offset);
  }

 private:
  // Fills with zeros if `value` is null.
  static void FillWith(KernelContext& ctx, const Tensor* value, Tensor* out) {
    const int64_t n = out->num_elements();
    DispatchMove(out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T v = value != nullptr ? *value->raw<T>() : T{};
      T* to = out->raw<T>();
      ctx.ParallelFor(n, 1 << 16, [&](int64_t b, int64_t e) { std::fill(to + b, to + e, v); });
    });
  }
};

Status PadGradient(GradientContext& c) {
  const Endpoint paddings = c.input(1);
  const Endpoint begin = c.Reshape(
      c.Op("Slice", {paddings, c.Cast(c.Ints({0, 0}), paddings.dtype()), c.Cast(c.Ints({-1, 1}), paddings.dtype())}),
      c.Ints({-1}));
  const Endpoint size = c.Op("Shape", {c.input(0)}, {{"out_type", paddings.dtype()}});
  const Endpoint inside = c.Op("Slice", {c.grad(), begin, size});
  c.set_input_grad(0, inside);
  if (c.num_inputs() > 2) {
    const auto sum = [&](Endpoint e) { return c.Op("Sum", {c.Reshape(e, c.Ints({-1})), c.Ints({0})}); };
    c.set_input_grad(2, c.Sub(sum(c.grad()), sum(inside)));
  }
  return absl::OkStatus();
}

MILLRACE_OP(Pad)
    .Input("input: T")
    .Input("paddings: Tpaddings")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tpaddings: {int32, int64} = int32")
    .Shape(PadShape)
    .Gradient(PadGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("Pads a tensor with zeros.");
MILLRACE_KERNEL(Pad, kCpu, PadKernel);

MILLRACE_OP(PadV2)
    .Input("input: T")
    .Input("paddings: Tpaddings")
    .Input("constant_values: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tpaddings: {int32, int64} = int32")
    .Shape(PadShape)
    .Gradient(PadGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("Pads a tensor with a value.");
MILLRACE_KERNEL(PadV2, kCpu, PadKernel);

}  // namespace
}  // namespace millrace
