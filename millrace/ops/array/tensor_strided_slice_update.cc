// TensorStridedSliceUpdate: a copy of a tensor with new values in a slice.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/kernels/strided_slice_spec.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

class TensorStridedSliceUpdateKernel : public Kernel {
 public:
  explicit TensorStridedSliceUpdateKernel(KernelInit& init) {
    StatusOr<StridedSliceMasks> masks = StridedSliceMasks::Of(init.node());
    if (masks.ok()) {
      masks_ = *masks;
    } else {
      init.Fail(masks.status());
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &input = ctx.input(0), &value = ctx.input(4);
    MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                        ResolveStridedSlice(input.shape(), ctx.input(1), ctx.input(2), ctx.input(3), masks_));
    const Shape slice = spec.shape.AsShape();
    MR_ASSIGN_OR_RETURN(const Tensor filled, BroadcastToSlice(ctx, value, slice));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, input.shape()));
    const bool known = DispatchMove(input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (out->raw_data() != input.raw_data()) std::copy_n(input.raw<T>(), input.num_elements(), out->raw<T>());
    });
    if (!known) return Unimplemented("TensorStridedSliceUpdate does not take ", DTypeName(input.dtype()));
    if (slice.num_elements() == 0) return absl::OkStatus();
    const auto strides = RowMajorStrides(input.shape().dims());
    const auto value_strides = RowMajorStrides(spec.size);
    CopyBox box;
    for (int i = 0; i < input.rank(); ++i) box.Add(spec.size[i], value_strides[i], strides[i] * spec.stride[i]);
    return StridedCopy(ctx, std::move(box), filled, 0, out, spec.Offset(strides));
  }

 private:
  StridedSliceMasks masks_;
};

AttrList Masks(const GradientContext& c) {
  AttrList attrs;
  for (const char* name : {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"}) {
    attrs.emplace_back(name, c.AttrOr<int64_t>(name, 0));
  }
  return attrs;
}

// Replaced elements get no gradient; the new values get that of their slice.
Status TensorStridedSliceUpdateGradient(GradientContext& c) {
  const Endpoint begin = c.input(1), end = c.input(2), strides = c.input(3), value = c.input(4), g = c.grad();
  const Endpoint of_slice = c.Op("StridedSlice", {g, begin, end, strides}, Masks(c));
  c.set_input_grad(0, c.Op("TensorStridedSliceUpdate", {g, begin, end, strides, c.ZerosLike(of_slice)}, Masks(c)));
  Node* const axes = c.AddNode("BroadcastGradientArgs", {c.Shape(of_slice), c.Shape(value)});
  if (axes == nullptr) return c.status();
  c.set_input_grad(4, c.Reshape(c.Op("Sum", {of_slice, Endpoint{axes, 1}}), c.Shape(value)));
  return c.status();
}

MILLRACE_OP(TensorStridedSliceUpdate)
    .Input("input: T")
    .Input("begin: Index")
    .Input("end: Index")
    .Input("strides: Index")
    .Input("value: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Index: {int32, int64}")
    .Attr("begin_mask: int = 0")
    .Attr("end_mask: int = 0")
    .Attr("ellipsis_mask: int = 0")
    .Attr("new_axis_mask: int = 0")
    .Attr("shrink_axis_mask: int = 0")
    .Shape(UnchangedShape)
    .Gradient(TensorStridedSliceUpdateGradient)
    .Summary("A copy of a tensor with new values in a slice.");

MILLRACE_KERNEL(TensorStridedSliceUpdate, kCpu, TensorStridedSliceUpdateKernel);

}  // namespace
}  // namespace millrace
