// AddSign and PowerSign: larger steps if gradient and momentum have the same sign.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/training/optimizer_kernel.h"
#include "millrace/ops/training/optimizer_steps.h"

namespace millrace {
namespace {

MILLRACE_OP(ApplyAddSign)
    .Input("var: Ref(T)")
    .Input("m: Ref(T)")
    .Input("lr: T")
    .Input("alpha: T")
    .Input("sign_decay: T")
    .Input("beta: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("AddSign update.");

MILLRACE_OP(ResourceApplyAddSign)
    .Input("var: resource")
    .Input("m: resource")
    .Input("lr: T")
    .Input("alpha: T")
    .Input("sign_decay: T")
    .Input("beta: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("AddSign update of resource variables.");

MILLRACE_OP(ApplyPowerSign)
    .Input("var: Ref(T)")
    .Input("m: Ref(T)")
    .Input("lr: T")
    .Input("logbase: T")
    .Input("sign_decay: T")
    .Input("beta: T")
    .Input("grad: T")
    .Output("out: Ref(T)")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("PowerSign update.");

MILLRACE_OP(ResourceApplyPowerSign)
    .Input("var: resource")
    .Input("m: resource")
    .Input("lr: T")
    .Input("logbase: T")
    .Input("sign_decay: T")
    .Input("beta: T")
    .Input("grad: T")
    .Attr("T: numbertype")
    .Attr("use_locking: bool = false")
    .Stateful()
    .Shape(OptimizerShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("PowerSign update of resource variables.");

MILLRACE_KERNEL(ApplyAddSign, kCpu, OptimizerKernelOf<optimizer_steps::AddSign>);
MILLRACE_KERNEL(ResourceApplyAddSign, kCpu, OptimizerKernelOf<optimizer_steps::AddSign>);
MILLRACE_KERNEL(ApplyPowerSign, kCpu, OptimizerKernelOf<optimizer_steps::PowerSign>);
MILLRACE_KERNEL(ResourceApplyPowerSign, kCpu, OptimizerKernelOf<optimizer_steps::PowerSign>);

}  // namespace
}  // namespace millrace
