// _SwitchN: forwards a value to one of many outputs.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class SwitchNKernel : public Kernel {
 public:
  explicit SwitchNKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& index = ctx.input(1);
    if (index.num_elements() != 1) {
      return InvalidArgument("the output index must be a scalar, but it has shape ", index.shape().ToString());
    }
    int chosen = index.scalar<int32_t>();
    if (chosen < 0 || chosen >= ctx.num_outputs()) chosen = ctx.num_outputs() - 1;
    ctx.SetOutput(chosen, ctx.input(0));
    return absl::OkStatus();
  }
};

MILLRACE_OP(_SwitchN)
    .Input("data: T")
    .Input("output_index: int32")
    .Output("outputs: num_outs * T")
    .Attr("num_outs: int >= 1")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .Control(ControlKind::kSwitch)
    .Summary("Forwards data to output output_index, or to the last one if it is out of range; the others are dead.");

MILLRACE_KERNEL(_SwitchN, kCpu, SwitchNKernel);

}  // namespace
}  // namespace millrace
