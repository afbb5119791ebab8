#include "millrace/runtime/run_kernel.h"

namespace millrace {

Status RunKernel(Kernel& kernel, const Node& node, const KernelContext& caller, absl::Span<const Tensor*> inputs,
                 absl::Span<Tensor> outputs) {
  KernelContext ctx;
  KernelContextAccess access(ctx);
  access.Set(&node, caller.device(), caller.allocator(), &caller.step());
  access.SetInputs(inputs.data(), static_cast<int>(inputs.size()), 0);
  access.SetOutputs(outputs.data(), static_cast<int>(outputs.size()));
  access.SetFrame(caller.frame_id(), caller.iteration(), false);
  return kernel.Compute(ctx);
}

}  // namespace millrace
