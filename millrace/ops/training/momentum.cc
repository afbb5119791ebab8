// Momentum, optionally Nesterov, in TensorFlow's and Keras' form.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

MILLRACE_OP(ApplyMomentum)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("grad: T")
    .Input("momentum: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Momentum update.");

MILLRACE_OP(ResourceApplyMomentum)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("momentum: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Momentum update of resource variables.");

MILLRACE_OP(SparseApplyMomentum)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("momentum: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse momentum update.");

MILLRACE_OP(ResourceSparseApplyMomentum)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("momentum: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse momentum update of resource variables.");

MILLRACE_OP(ResourceApplyKerasMomentum)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("momentum: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Momentum (Keras form) update of resource variables.");

MILLRACE_OP(ResourceSparseApplyKerasMomentum)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("momentum: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("use_nesterov: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse momentum (Keras form) update of resource variables.");

MILLRACE_KERNEL(ApplyMomentum, kCpu, OptimizerKernelOf<optimizer_steps::Momentum>);
MILLRACE_KERNEL(ResourceApplyMomentum, kCpu, OptimizerKernelOf<optimizer_steps::Momentum>);
MILLRACE_KERNEL(SparseApplyMomentum, kCpu, OptimizerKernelOf<optimizer_steps::Momentum>);
MILLRACE_KERNEL(ResourceSparseApplyMomentum, kCpu, OptimizerKernelOf<optimizer_steps::Momentum>);
MILLRACE_KERNEL(ResourceApplyKerasMomentum, kCpu, OptimizerKernelOf<optimizer_steps::KerasMomentum>);
MILLRACE_KERNEL(ResourceSparseApplyKerasMomentum, kCpu, OptimizerKernelOf<optimizer_steps::KerasMomentum>);

}  // namespace
}  // namespace millrace
