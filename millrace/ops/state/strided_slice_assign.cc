// StridedSliceAssign: assigns to a slice of a variable (Python slicing).
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/kernels/strided_slice_spec.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class StridedSliceAssignKernel : public Kernel {
 public:
  explicit StridedSliceAssignKernel(KernelInit& init) : dtype_(init.input_type(4)) {
    StatusOr<StridedSliceMasks> masks = StridedSliceMasks::Of(init.node());
    if (masks.ok()) {
      masks_ = *masks;
    } else {
      init.Fail(masks.status());
    }
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
    Variable* const only[] = {variable.get()};
    MR_RETURN_IF_ERROR(ChangeState(ctx, [&](VariableUpdate* by) {
      return Variable::UpdateInPlace(
          only, [&](absl::Span<Tensor> values) { return Assign(ctx, &values[0]); }, by);
    }));
    ForwardReference(ctx);
    return absl::OkStatus();
  }

 private:
  Status Assign(KernelContext& ctx, Tensor* to) const {
    MR_ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                        ResolveStridedSlice(to->shape(), ctx.input(1), ctx.input(2), ctx.input(3), masks_));
    MR_ASSIGN_OR_RETURN(const Tensor value, BroadcastToSlice(ctx, ctx.input(4), spec.shape.AsShape()));
    const auto strides = RowMajorStrides(to->shape().dims());
    const auto value_strides = RowMajorStrides(spec.size);
    CopyBox box;
    for (int i = 0; i < to->rank(); ++i) {
      box.Add(spec.size[i], value_strides[i], strides[i] * spec.stride[i]);
    }
    return StridedCopy(ctx, std::move(box), value, 0, to, spec.Offset(strides));
  }

  const DType dtype_;
  StridedSliceMasks masks_;
};

MILLRACE_OP(StridedSliceAssign)
    .Input("ref: Ref(T)")
    .Input("begin: Index")
    .Input("end: Index")
    .Input("strides: Index")
    .Input("value: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: type")
    .Attr("Index: {int32, int64}")
    .Attr("begin_mask: int = 0")
    .Attr("end_mask: int = 0")
    .Attr("ellipsis_mask: int = 0")
    .Attr("new_axis_mask: int = 0")
    .Attr("shrink_axis_mask: int = 0")
    .Shape(UpdatedVariableShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Replaces a slice of a variable.");

MILLRACE_OP(ResourceStridedSliceAssign)
    .Input("ref: resource")
    .Input("begin: Index")
    .Input("end: Index")
    .Input("strides: Index")
    .Input("value: T")
    .Attr("T: type")
    .Attr("Index: {int32, int64}")
    .Attr("begin_mask: int = 0")
    .Attr("end_mask: int = 0")
    .Attr("ellipsis_mask: int = 0")
    .Attr("new_axis_mask: int = 0")
    .Attr("shrink_axis_mask: int = 0")
    .Stateful()
    .Shape(UpdatedVariableShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Replaces a slice of a resource variable.");

MILLRACE_KERNEL(StridedSliceAssign, kCpu, StridedSliceAssignKernel);
MILLRACE_KERNEL(ResourceStridedSliceAssign, kCpu, StridedSliceAssignKernel);

}  // namespace
}  // namespace millrace
