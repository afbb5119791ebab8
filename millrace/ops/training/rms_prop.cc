// RMSProp, plain and centered.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

MILLRACE_OP(ApplyRMSProp)
    .Input("var: Ref(T)")
    .Input("ms: Ref(T)")
    .Input("mom: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("RMSProp update.");

MILLRACE_OP(ResourceApplyRMSProp)
    .Input("var: resource")
    .Input("ms: resource")
    .Input("mom: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("RMSProp update of resource variables.");

MILLRACE_OP(SparseApplyRMSProp)
    .Input("var: Ref(T)")
    .Input("ms: Ref(T)")
    .Input("mom: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse RMSProp update.");

MILLRACE_OP(ResourceSparseApplyRMSProp)
    .Input("var: resource")
    .Input("ms: resource")
    .Input("mom: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse RMSProp update of resource variables.");

MILLRACE_OP(ApplyCenteredRMSProp)
    .Input("var: Ref(T)")
    .Input("mg: Ref(T)")
    .Input("ms: Ref(T)")
    .Input("mom: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Centered RMSProp update.");

MILLRACE_OP(ResourceApplyCenteredRMSProp)
    .Input("var: resource")
    .Input("mg: resource")
    .Input("ms: resource")
    .Input("mom: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Centered RMSProp update of resource variables.");

MILLRACE_OP(SparseApplyCenteredRMSProp)
    .Input("var: Ref(T)")
    .Input("mg: Ref(T)")
    .Input("ms: Ref(T)")
    .Input("mom: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse centered RMSProp update.");

MILLRACE_OP(ResourceSparseApplyCenteredRMSProp)
    .Input("var: resource")
    .Input("mg: resource")
    .Input("ms: resource")
    .Input("mom: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("momentum: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse centered RMSProp update of resource variables.");

MILLRACE_KERNEL(ApplyRMSProp, kCpu, OptimizerKernelOf<optimizer_steps::RmsProp>);
MILLRACE_KERNEL(ResourceApplyRMSProp, kCpu, OptimizerKernelOf<optimizer_steps::RmsProp>);
MILLRACE_KERNEL(SparseApplyRMSProp, kCpu, OptimizerKernelOf<optimizer_steps::RmsProp>);
MILLRACE_KERNEL(ResourceSparseApplyRMSProp, kCpu, OptimizerKernelOf<optimizer_steps::RmsProp>);
MILLRACE_KERNEL(ApplyCenteredRMSProp, kCpu, OptimizerKernelOf<optimizer_steps::CenteredRmsProp>);
MILLRACE_KERNEL(ResourceApplyCenteredRMSProp, kCpu, OptimizerKernelOf<optimizer_steps::CenteredRmsProp>);
MILLRACE_KERNEL(SparseApplyCenteredRMSProp, kCpu, OptimizerKernelOf<optimizer_steps::CenteredRmsProp>);
MILLRACE_KERNEL(ResourceSparseApplyCenteredRMSProp, kCpu, OptimizerKernelOf<optimizer_steps::CenteredRmsProp>);

}  // namespace
}  // namespace millrace
