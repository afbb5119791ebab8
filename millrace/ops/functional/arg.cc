// _Arg and _Retval: the arguments and results of a function. The function's caller provides their values.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/functional/functional_shapes.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class OutsideFunctionKernel : public Kernel {
 public:
  explicit OutsideFunctionKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    return Internal(ctx.node().type(), " has a value only within a function");
  }
};

MILLRACE_OP(_Arg)
    .Output("output: T")
    .Attr("T: type")
    .Attr("index: int >= 0")
    .Stateful()
    .Shape(DeclaredShapes)
    .NotDifferentiable()
    .Trait(OpTrait::kFunctionBorder)
    .Summary("An argument of a function.");

MILLRACE_OP(_Retval)
    .Input("input: T")
    .Attr("T: type")
    .Attr("index: int >= 0")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Trait(OpTrait::kFunctionBorder)
    .Summary("A result of a function.");

MILLRACE_KERNEL(_Arg, kCpu, OutsideFunctionKernel);
MILLRACE_KERNEL(_Retval, kCpu, OutsideFunctionKernel);

}  // namespace
}  // namespace millrace
