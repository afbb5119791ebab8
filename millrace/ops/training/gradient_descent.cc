// Gradient descent, plain and proximal.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

MILLRACE_OP(ApplyGradientDescent)
    .Input("var: Ref(T)")
    .Input("alpha: T")
    .Input("delta: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Gradient descent update.");

MILLRACE_OP(ResourceApplyGradientDescent)
    .Input("var: resource")
    .Input("alpha: T")
    .Input("delta: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Gradient descent update of resource variables.");

MILLRACE_OP(ApplyProximalGradientDescent)
    .Input("var: Ref(T)")
    .Input("alpha: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("delta: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Proximal gradient descent (L1 and L2) update.");

MILLRACE_OP(ResourceApplyProximalGradientDescent)
    .Input("var: resource")
    .Input("alpha: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("delta: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Proximal gradient descent (L1 and L2) update of resource variables.");

MILLRACE_OP(SparseApplyProximalGradientDescent)
    .Input("var: Ref(T)")
    .Input("alpha: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse proximal gradient descent (L1 and L2) update.");

MILLRACE_OP(ResourceSparseApplyProximalGradientDescent)
    .Input("var: resource")
    .Input("alpha: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse proximal gradient descent (L1 and L2) update of resource variables.");

MILLRACE_KERNEL(ApplyGradientDescent, kCpu, OptimizerKernelOf<optimizer_steps::GradientDescent>);
MILLRACE_KERNEL(ResourceApplyGradientDescent, kCpu, OptimizerKernelOf<optimizer_steps::GradientDescent>);
MILLRACE_KERNEL(ApplyProximalGradientDescent, kCpu, OptimizerKernelOf<optimizer_steps::ProximalGradientDescent>);
MILLRACE_KERNEL(ResourceApplyProximalGradientDescent, kCpu,
                OptimizerKernelOf<optimizer_steps::ProximalGradientDescent>);
MILLRACE_KERNEL(SparseApplyProximalGradientDescent, kCpu, OptimizerKernelOf<optimizer_steps::ProximalGradientDescent>);
MILLRACE_KERNEL(ResourceSparseApplyProximalGradientDescent, kCpu,
                OptimizerKernelOf<optimizer_steps::ProximalGradientDescent>);

}  // namespace
}  // namespace millrace
