// FTRL (follow the regularized leader).
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

MILLRACE_OP(ApplyFtrl)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("linear: Ref(T)")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("lr_power: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("FTRL update.");

MILLRACE_OP(ResourceApplyFtrl)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("linear: resource")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("lr_power: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("FTRL update of resource variables.");

MILLRACE_OP(SparseApplyFtrl)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("linear: Ref(T)")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("lr_power: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse FTRL update.");

MILLRACE_OP(ResourceSparseApplyFtrl)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("linear: resource")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("lr_power: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse FTRL update of resource variables.");

MILLRACE_OP(ApplyFtrlV2)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("linear: Ref(T)")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("l2_shrinkage: T")
    .Input("lr_power: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("FTRL (with L2 shrinkage) update.");

MILLRACE_OP(ResourceApplyFtrlV2)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("linear: resource")
    .Input("grad: T")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("l2_shrinkage: T")
    .Input("lr_power: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("FTRL (with L2 shrinkage) update of resource variables.");

MILLRACE_OP(SparseApplyFtrlV2)
    .Input("var: Ref(T)")
    .Input("accum: Ref(T)")
    .Input("linear: Ref(T)")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("l2_shrinkage: T")
    .Input("lr_power: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse FTRL (with L2 shrinkage) update.");

MILLRACE_OP(ResourceSparseApplyFtrlV2)
    .Input("var: resource")
    .Input("accum: resource")
    .Input("linear: resource")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("lr: T")
    .Input("l1: T")
    .Input("l2: T")
    .Input("l2_shrinkage: T")
    .Input("lr_power: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("use_locking: bool = false")
    .Attr("multiply_linear_by_lr: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Sparse FTRL (with L2 shrinkage) update of resource variables.");

MILLRACE_KERNEL(ApplyFtrl, kCpu, OptimizerKernelOf<optimizer_steps::Ftrl>);
MILLRACE_KERNEL(ResourceApplyFtrl, kCpu, OptimizerKernelOf<optimizer_steps::Ftrl>);
MILLRACE_KERNEL(SparseApplyFtrl, kCpu, OptimizerKernelOf<optimizer_steps::Ftrl>);
MILLRACE_KERNEL(ResourceSparseApplyFtrl, kCpu, OptimizerKernelOf<optimizer_steps::Ftrl>);
MILLRACE_KERNEL(ApplyFtrlV2, kCpu, OptimizerKernelOf<optimizer_steps::FtrlV2>);
MILLRACE_KERNEL(ResourceApplyFtrlV2, kCpu, OptimizerKernelOf<optimizer_steps::FtrlV2>);
MILLRACE_KERNEL(SparseApplyFtrlV2, kCpu, OptimizerKernelOf<optimizer_steps::FtrlV2>);
MILLRACE_KERNEL(ResourceSparseApplyFtrlV2, kCpu, OptimizerKernelOf<optimizer_steps::FtrlV2>);

}  // namespace
}  // namespace millrace
