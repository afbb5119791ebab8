// Adadelta.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

MILLRACE_OP(ApplyAdadelta)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("accum_update: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adadelta update.");

MILLRACE_OP(ResourceApplyAdadelta)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("accum_update: resource")
    .Input("lr: T")
    .Input("rho: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adadelta update of resource variables.");

MILLRACE_OP(SparseApplyAdadelta)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("accum_update: Ref(T)")
    .Input("lr: T")
    .Input("rho: T")
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
    .Summary("Sparse Adadelta update.");

MILLRACE_OP(ResourceSparseApplyAdadelta)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("accum_update: resource")
    .Input("lr: T")
    .Input("rho: T")
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
    .Summary("Sparse Adadelta update of resource variables.");

MILLRACE_KERNEL(ApplyAdadelta, kCpu, OptimizerKernelOf<optimizer_steps::Adadelta>);
MILLRACE_KERNEL(ResourceApplyAdadelta, kCpu, OptimizerKernelOf<optimizer_steps::Adadelta>);
MILLRACE_KERNEL(SparseApplyAdadelta, kCpu, OptimizerKernelOf<optimizer_steps::Adadelta>);
MILLRACE_KERNEL(ResourceSparseApplyAdadelta, kCpu, OptimizerKernelOf<optimizer_steps::Adadelta>);

}  // namespace
}  // namespace millrace
