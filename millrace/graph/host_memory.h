// Whether a tensor is in host memory or in the memory of the device whose kernel produced it.
//
//   MILLRACE_HOST_MEMORY(Reshape, "GPU", "shape");
//
// next to a kernel declares that this argument is in host memory although the kernel runs on a device with its own
// memory. Strings, handles and variants are always in host memory.
#pragma once

#include <string>

#include "millrace/graph/graph.h"

namespace millrace {

// True if the node's device works in host memory, or if the node is not placed yet.
bool RunsInHostMemory(const Node& node);

// True if the tensor is produced in host memory. A feed always is. A reference is in host memory, wherever the value is
// that it refers to.
bool IsInHostMemory(const Endpoint& tensor);
// The same for the value that a reference refers to. It is where the device that produces the reference has its memory.
bool IsReferredValueInHostMemory(const Endpoint& reference);
// True if the node's kernel needs input i in host memory.
bool WantsHostMemory(const Node& node, int i);

struct HostMemoryRegistration {
  // With a dtype, applies only if the argument has that type.
  HostMemoryRegistration(const char* op, const char* device_type, const char* argument, DType dtype = DType::kInvalid);
};

// All inputs and outputs of such nodes are in host memory: those whose attr is `type`, or all if `attr` is null.
void RegisterHostNodes(const char* op, const char* device_type, const char* attr, DType type);

#define MILLRACE_HOST_MEMORY(op, ...) \
  static const ::millrace::HostMemoryRegistration MR_CONCAT(mr_host_memory_, __COUNTER__)(#op, __VA_ARGS__)

}  // namespace millrace
