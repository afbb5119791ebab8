// Pad and PadV2: a border of one value.

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/paddings.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

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
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    if (ctx.num_inputs() > 2) {
      CopyBox all;
      all.Add(shape.num_elements(), 0, 1);
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(all), ctx.input(2), 0, out, 0));
    } else {
      MR_RETURN_IF_ERROR(ClearTensor(ctx, out));
    }
    const auto from = RowMajorStrides(input.shape().dims());
    const auto to = RowMajorStrides(shape.dims());
    CopyBox box;
    int64_t offset = 0;
    for (int i = 0; i < input.rank(); ++i) {
      box.Add(input.dim(i), from[i], to[i]);
      offset += paddings[i].before * to[i];
    }
    return StridedCopy(ctx, std::move(box), input, 0, out, offset);
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
MILLRACE_KERNEL(Pad, kCuda, PadKernel);
MILLRACE_HOST_MEMORY(Pad, "GPU", "paddings");
MILLRACE_HOST_KERNEL(Pad, kCuda, "T", DType::kInt32);

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
MILLRACE_KERNEL(PadV2, kCuda, PadKernel);
MILLRACE_HOST_MEMORY(PadV2, "GPU", "paddings");
MILLRACE_HOST_KERNEL(PadV2, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
