// Adagrad and its proximal form.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

MILLRACE_OP(ApplyAdagrad)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad update.");

MILLRACE_OP(ResourceApplyAdagrad)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad update of resource variables.");

MILLRACE_OP(SparseApplyAdagrad)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad update.");

MILLRACE_OP(ResourceSparseApplyAdagrad)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad update of resource variables.");

MILLRACE_OP(ApplyAdagradV2)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad (with epsilon) update.");

MILLRACE_OP(ResourceApplyAdagradV2)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Adagrad (with epsilon) update of resource variables.");

MILLRACE_OP(SparseApplyAdagradV2)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad (with epsilon) update.");

MILLRACE_OP(ResourceSparseApplyAdagradV2)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("epsilon: T")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("update_slots: bool = true")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse Adagrad (with epsilon) update of resource variables.");

MILLRACE_OP(ApplyProximalAdagrad)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Proximal Adagrad (L1 and L2) update.");

MILLRACE_OP(ResourceApplyProximalAdagrad)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Proximal Adagrad (L1 and L2) update of resource variables.");

MILLRACE_OP(SparseApplyProximalAdagrad)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("lr: T")
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
    .Summary("Sparse proximal Adagrad (L1 and L2) update.");

MILLRACE_OP(ResourceSparseApplyProximalAdagrad)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("lr: T")
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
    .Summary("Sparse proximal Adagrad (L1 and L2) update of resource variables.");

MILLRACE_KERNEL(ApplyAdagrad, kCpu, OptimizerKernelOf<optimizer_steps::Adagrad>);
MILLRACE_KERNEL(ResourceApplyAdagrad, kCpu, OptimizerKernelOf<optimizer_steps::Adagrad>);
MILLRACE_KERNEL(SparseApplyAdagrad, kCpu, OptimizerKernelOf<optimizer_steps::Adagrad>);
MILLRACE_KERNEL(ResourceSparseApplyAdagrad, kCpu, OptimizerKernelOf<optimizer_steps::Adagrad>);
MILLRACE_KERNEL(ApplyAdagradV2, kCpu, OptimizerKernelOf<optimizer_steps::AdagradV2>);
MILLRACE_KERNEL(ResourceApplyAdagradV2, kCpu, OptimizerKernelOf<optimizer_steps::AdagradV2>);
MILLRACE_KERNEL(SparseApplyAdagradV2, kCpu, OptimizerKernelOf<optimizer_steps::AdagradV2>);
MILLRACE_KERNEL(ResourceSparseApplyAdagradV2, kCpu, OptimizerKernelOf<optimizer_steps::AdagradV2>);
MILLRACE_KERNEL(ApplyProximalAdagrad, kCpu, OptimizerKernelOf<optimizer_steps::ProximalAdagrad>);
MILLRACE_KERNEL(ResourceApplyProximalAdagrad, kCpu, OptimizerKernelOf<optimizer_steps::ProximalAdagrad>);
MILLRACE_KERNEL(SparseApplyProximalAdagrad, kCpu, OptimizerKernelOf<optimizer_steps::ProximalAdagrad>);
MILLRACE_KERNEL(ResourceSparseApplyProximalAdagrad, kCpu, OptimizerKernelOf<optimizer_steps::ProximalAdagrad>);

}  // namespace
}  // namespace millrace
