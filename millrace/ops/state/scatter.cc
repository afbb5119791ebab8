// ScatterAdd and its variants: update rows of a variable by index.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/state/scatter_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

MILLRACE_OP(ScatterUpdate)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = true")
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Replaces rows of a variable by updates.");

MILLRACE_OP(ResourceScatterUpdate)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("updates: dtype")
    .Attr("dtype: type")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Replaces rows of a resource variable by updates.");

MILLRACE_OP(ScatterAdd)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adds updates to rows of a variable.");

MILLRACE_OP(ResourceScatterAdd)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("updates: dtype")
    .Attr("dtype: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adds updates to rows of a resource variable.");

MILLRACE_OP(ScatterSub)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Subtracts updates from rows of a variable.");

MILLRACE_OP(ResourceScatterSub)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("updates: dtype")
    .Attr("dtype: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Subtracts updates from rows of a resource variable.");

MILLRACE_OP(ScatterMul)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Multiplies rows of a variable by updates.");

MILLRACE_OP(ResourceScatterMul)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("updates: dtype")
    .Attr("dtype: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Multiplies rows of a resource variable by updates.");

MILLRACE_OP(ScatterDiv)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Divides rows of a variable by updates.");

MILLRACE_OP(ResourceScatterDiv)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("updates: dtype")
    .Attr("dtype: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Divides rows of a resource variable by updates.");

MILLRACE_OP(ScatterMin)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: {half, bfloat16, float, double, int32, int64}")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Element-wise minimum of rows of a variable and updates.");

MILLRACE_OP(ResourceScatterMin)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("updates: dtype")
    .Attr("dtype: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Element-wise minimum of rows of a resource variable and updates.");

MILLRACE_OP(ScatterMax)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: {half, bfloat16, float, double, int32, int64}")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Element-wise maximum of rows of a variable and updates.");

MILLRACE_OP(ResourceScatterMax)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("updates: dtype")
    .Attr("dtype: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(ScatterShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Element-wise maximum of rows of a resource variable and updates.");

MILLRACE_KERNEL(ScatterUpdate, kCpu, ScatterKernelOf<ScatterOp::kUpdate, ScatterBy::kRow>);
MILLRACE_KERNEL(ResourceScatterUpdate, kCpu, ScatterKernelOf<ScatterOp::kUpdate, ScatterBy::kRow>);
MILLRACE_KERNEL(ScatterAdd, kCpu, ScatterKernelOf<ScatterOp::kAdd, ScatterBy::kRow>);
MILLRACE_KERNEL(ResourceScatterAdd, kCpu, ScatterKernelOf<ScatterOp::kAdd, ScatterBy::kRow>);
MILLRACE_KERNEL(ScatterSub, kCpu, ScatterKernelOf<ScatterOp::kSub, ScatterBy::kRow>);
MILLRACE_KERNEL(ResourceScatterSub, kCpu, ScatterKernelOf<ScatterOp::kSub, ScatterBy::kRow>);
MILLRACE_KERNEL(ScatterMul, kCpu, ScatterKernelOf<ScatterOp::kMul, ScatterBy::kRow>);
MILLRACE_KERNEL(ResourceScatterMul, kCpu, ScatterKernelOf<ScatterOp::kMul, ScatterBy::kRow>);
MILLRACE_KERNEL(ScatterDiv, kCpu, ScatterKernelOf<ScatterOp::kDiv, ScatterBy::kRow>);
MILLRACE_KERNEL(ResourceScatterDiv, kCpu, ScatterKernelOf<ScatterOp::kDiv, ScatterBy::kRow>);
MILLRACE_KERNEL(ScatterMin, kCpu, ScatterKernelOf<ScatterOp::kMin, ScatterBy::kRow>);
MILLRACE_KERNEL(ResourceScatterMin, kCpu, ScatterKernelOf<ScatterOp::kMin, ScatterBy::kRow>);
MILLRACE_KERNEL(ScatterMax, kCpu, ScatterKernelOf<ScatterOp::kMax, ScatterBy::kRow>);
MILLRACE_KERNEL(ResourceScatterMax, kCpu, ScatterKernelOf<ScatterOp::kMax, ScatterBy::kRow>);

}  // namespace
}  // namespace millrace
