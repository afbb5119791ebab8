// Switch and its variants: forward a value to one of several outputs; the others are dead.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class SwitchKernel : public Kernel {
 public:
  explicit SwitchKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& pred = ctx.input(1);
    if (pred.num_elements() != 1) {
      return InvalidArgument("the second input must be a scalar, but it has shape ", pred.shape().ToString());
    }
    ctx.SetOutput(pred.scalar<bool>() ? 1 : 0, ctx.input(0));
    return absl::OkStatus();
  }
};

// One reference out of several, by number.
class RefSelectKernel : public Kernel {
 public:
  explicit RefSelectKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& index = ctx.input(0);
    if (index.num_elements() != 1) {
      return InvalidArgument("index must be a scalar, but it has shape ", index.shape().ToString());
    }
    const int32_t chosen = index.scalar<int32_t>();
    if (chosen < 0 || chosen >= ctx.num_inputs() - 1) {
      return InvalidArgument("index ", chosen, " is not in [0, ", ctx.num_inputs() - 1, ")");
    }
    ctx.SetOutput(0, ctx.input(chosen + 1));
    return absl::OkStatus();
  }
};

MILLRACE_OP(Switch)
    .Input("data: T")
    .Input("pred: bool")
    .Output("output_false: T")
    .Output("output_true: T")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .Control(ControlKind::kSwitch)
    .Summary("Forwards data to output_true or output_false depending on pred; the other is dead.");

MILLRACE_OP(RefSwitch)
    .Input("data: Ref(T)")
    .Input("pred: bool")
    .Output("output_false: Ref(T)")
    .Output("output_true: Ref(T)")
    .Attr("T: type")
    .AllowsUninitializedInput()
    .Shape(UnchangedShape)
    .Control(ControlKind::kSwitch)
    .Summary("Switch for a reference to a variable.");

MILLRACE_OP(RefSelect)
    .Input("index: int32")
    .Input("inputs: N * Ref(T)")
    .Output("output: Ref(T)")
    .Attr("T: type")
    .Attr("N: int >= 1")
    .Shape(UnknownShape)
    .Summary("Selects one of several references by index.");

MILLRACE_KERNEL(Switch, kCpu, SwitchKernel);
MILLRACE_KERNEL(Switch, kCuda, SwitchKernel);
MILLRACE_HOST_MEMORY(Switch, "GPU", "pred");
MILLRACE_HOST_KERNEL(Switch, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(RefSwitch, kCpu, SwitchKernel);
MILLRACE_KERNEL(RefSwitch, kCuda, SwitchKernel);
MILLRACE_HOST_MEMORY(RefSwitch, "GPU", "pred");
MILLRACE_KERNEL(RefSelect, kCpu, RefSelectKernel);

}  // namespace
}  // namespace millrace
