#pragma once

#include "absl/types/span.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// Runs a synchronous kernel of `node` on these inputs, as part of the execution of another one: on its device, in its
// step and frame, with its allocator. No memory is forwarded. The error does not name the node.
Status RunKernel(Kernel& kernel, const Node& node, const KernelContext& caller, absl::Span<const Tensor*> inputs,
                 absl::Span<Tensor> outputs);

}  // namespace millrace
