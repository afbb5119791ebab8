// ScatterNdAdd and its variants: update slices of a variable by coordinates.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/state/scatter_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

MILLRACE_OP(ScatterNdUpdate)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = true")
    .Attr("bad_indices_policy: string = ''")
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Replaces slices of a variable by updates.");

MILLRACE_OP(ResourceScatterNdUpdate)
    .Input("ref: resource")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = true")
    .Attr("bad_indices_policy: string = ''")
    .Stateful()
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Replaces slices of a resource variable by updates.");

MILLRACE_OP(ScatterNdAdd)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("bad_indices_policy: string = ''")
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adds updates to slices of a variable.");

MILLRACE_OP(ResourceScatterNdAdd)
    .Input("ref: resource")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = true")
    .Attr("bad_indices_policy: string = ''")
    .Stateful()
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adds updates to slices of a resource variable.");

MILLRACE_OP(ScatterNdSub)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("bad_indices_policy: string = ''")
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Subtracts updates from slices of a variable.");

MILLRACE_OP(ResourceScatterNdSub)
    .Input("ref: resource")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = true")
    .Attr("bad_indices_policy: string = ''")
    .Stateful()
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Subtracts updates from slices of a resource variable.");

MILLRACE_OP(ScatterNdMin)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("bad_indices_policy: string = ''")
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Element-wise minimum of slices of a variable and updates.");

MILLRACE_OP(ResourceScatterNdMin)
    .Input("ref: resource")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = true")
    .Attr("bad_indices_policy: string = ''")
    .Stateful()
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Element-wise minimum of slices of a resource variable and updates.");

MILLRACE_OP(ScatterNdMax)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("bad_indices_policy: string = ''")
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Element-wise maximum of slices of a variable and updates.");

MILLRACE_OP(ResourceScatterNdMax)
    .Input("ref: resource")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = true")
    .Attr("bad_indices_policy: string = ''")
    .Stateful()
    .Shape(ScatterNdShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Element-wise maximum of slices of a resource variable and updates.");

MILLRACE_KERNEL(ScatterNdUpdate, kCpu, ScatterKernelOf<ScatterOp::kUpdate, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ResourceScatterNdUpdate, kCpu, ScatterKernelOf<ScatterOp::kUpdate, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ScatterNdAdd, kCpu, ScatterKernelOf<ScatterOp::kAdd, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ResourceScatterNdAdd, kCpu, ScatterKernelOf<ScatterOp::kAdd, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ScatterNdSub, kCpu, ScatterKernelOf<ScatterOp::kSub, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ResourceScatterNdSub, kCpu, ScatterKernelOf<ScatterOp::kSub, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ScatterNdMin, kCpu, ScatterKernelOf<ScatterOp::kMin, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ResourceScatterNdMin, kCpu, ScatterKernelOf<ScatterOp::kMin, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ScatterNdMax, kCpu, ScatterKernelOf<ScatterOp::kMax, ScatterBy::kCoordinates>);
MILLRACE_KERNEL(ResourceScatterNdMax, kCpu, ScatterKernelOf<ScatterOp::kMax, ScatterBy::kCoordinates>);

}  // namespace
}  // namespace millrace
