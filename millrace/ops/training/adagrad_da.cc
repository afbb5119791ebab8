// Adagrad dual averaging: the variable is computed from the sums of gradients and of their squares.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

MILLRACE_OP(ApplyAdagradDA)
    .Input("var: Ref(T)")
    .Input("gradient_accumulator: Ref(T)")
    .Input("gradient_squared_accumulator: Ref(T)")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("global_step: int64")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad dual averaging update.");

MILLRACE_OP(ResourceApplyAdagradDA)
    .Input("var: resource")
    .Input("gradient_accumulator: resource")
    .Input("gradient_squared_accumulator: resource")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("global_step: int64")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad dual averaging update of resource variables.");

MILLRACE_OP(SparseApplyAdagradDA)
    .Input("var: Ref(T)")
    .Input("gradient_accumulator: Ref(T)")
    .Input("gradient_squared_accumulator: Ref(T)")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("global_step: int64")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad dual averaging update.");

MILLRACE_OP(ResourceSparseApplyAdagradDA)
    .Input("var: resource")
    .Input("gradient_accumulator: resource")
    .Input("gradient_squared_accumulator: resource")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("global_step: int64")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad dual averaging update of resource variables.");

MILLRACE_KERNEL(ApplyAdagradDA, kCpu, OptimizerKernelOf<optimizer_steps::AdagradDa>);
MILLRACE_KERNEL(ResourceApplyAdagradDA, kCpu, OptimizerKernelOf<optimizer_steps::AdagradDa>);
MILLRACE_KERNEL(SparseApplyAdagradDA, kCpu, OptimizerKernelOf<optimizer_steps::AdagradDa>);
MILLRACE_KERNEL(ResourceSparseApplyAdagradDA, kCpu, OptimizerKernelOf<optimizer_steps::AdagradDa>);

}  // namespace
}  // namespace millrace
