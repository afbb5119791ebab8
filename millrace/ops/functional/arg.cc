// _Arg and _Retval: where values enter and leave a function. What gives them a value is whoever runs the function.
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
    .Summary("An argument of a function.");

MILLRACE_OP(_Retval)
    .Input("input: T")
    .Attr("T: type")
    .Attr("index: int >= 0")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("A result of a function.");

MILLRACE_KERNEL(_Arg, kCpu, OutsideFunctionKernel);
MILLRACE_KERNEL(_Retval, kCpu, OutsideFunctionKernel);

}  // namespace
}  // namespace millrace
