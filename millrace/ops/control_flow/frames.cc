// Enter, Exit, NextIteration, LoopCond: the borders of loops. What they mean is the executor's
// matter; their kernels pass the value on.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class ForwardKernel : public Kernel {
 public:
  explicit ForwardKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }
};

class ControlTriggerKernel : public Kernel {
 public:
  explicit ControlTriggerKernel(KernelInit&) {}
  Status Compute(KernelContext&) override { return absl::OkStatus(); }
};

MILLRACE_OP(Enter)
    .Input("data: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("frame_name: string")
    .Attr("is_constant: bool = false")
    .Attr("parallel_iterations: int = 10")
    .Shape(UnchangedShape)
    .Control(ControlKind::kEnter)
    .Ints(UnchangedInts)
    .Summary("Passes a value into the first iteration of a loop, or into all of them if it is constant.");

MILLRACE_OP(RefEnter)
    .Input("data: Ref(T)")
    .Output("output: Ref(T)")
    .Attr("T: type")
    .Attr("frame_name: string")
    .Attr("is_constant: bool = false")
    .Attr("parallel_iterations: int = 10")
    .Shape(UnchangedShape)
    .Control(ControlKind::kEnter)
    .Summary("Enter for a reference to a variable.");

MILLRACE_OP(Exit)
    .Input("data: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .Control(ControlKind::kExit)
    .Summary("Passes a value out of a loop.");

MILLRACE_OP(RefExit)
    .Input("data: Ref(T)")
    .Output("output: Ref(T)")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .Control(ControlKind::kExit)
    .Summary("Exit for a reference to a variable.");

MILLRACE_OP(NextIteration)
    .Input("data: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .Control(ControlKind::kNextIteration)
    .Summary("Passes a value to the next iteration of a loop.");

MILLRACE_OP(RefNextIteration)
    .Input("data: Ref(T)")
    .Output("output: Ref(T)")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .Control(ControlKind::kNextIteration)
    .Summary("NextIteration for a reference to a variable.");

MILLRACE_OP(LoopCond)
    .Input("input: bool")
    .Output("output: bool")
    .Shape(ScalarShape)
    .Control(ControlKind::kLoopCond)
    .Summary("Decides whether a loop continues.");

MILLRACE_OP(ControlTrigger).Shape(NoOutputs).Summary("A no-op that runs even if its control inputs are dead.");

MILLRACE_KERNEL(Enter, kCpu, ForwardKernel);
MILLRACE_KERNEL(Enter, kCuda, ForwardKernel);
MILLRACE_HOST_KERNEL(Enter, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(RefEnter, kCpu, ForwardKernel);
MILLRACE_KERNEL(RefEnter, kCuda, ForwardKernel);
MILLRACE_KERNEL(Exit, kCpu, ForwardKernel);
MILLRACE_KERNEL(Exit, kCuda, ForwardKernel);
MILLRACE_HOST_KERNEL(Exit, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(RefExit, kCpu, ForwardKernel);
MILLRACE_KERNEL(RefExit, kCuda, ForwardKernel);
MILLRACE_KERNEL(NextIteration, kCpu, ForwardKernel);
MILLRACE_KERNEL(NextIteration, kCuda, ForwardKernel);
MILLRACE_HOST_KERNEL(NextIteration, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(RefNextIteration, kCpu, ForwardKernel);
MILLRACE_KERNEL(RefNextIteration, kCuda, ForwardKernel);
MILLRACE_KERNEL(LoopCond, kCpu, ForwardKernel);
MILLRACE_HOST_KERNEL(LoopCond, kCuda);
MILLRACE_KERNEL(ControlTrigger, kCpu, ControlTriggerKernel);
MILLRACE_HOST_KERNEL(ControlTrigger, kCuda);

}  // namespace
}  // namespace millrace
