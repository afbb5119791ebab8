// Where a tensor lies: in the host's memory, or in that of the device whose kernel made it.
//
//   MILLRACE_HOST_MEMORY(Reshape, "GPU", "shape");
//
// beside a kernel says that this argument of it is read or written by the host although the kernel runs on
// a device with memory of its own. Strings, handles and variants are always the host's.
#pragma once

#include <string>

#include "millrace/graph/graph.h"

namespace millrace {

// True for a device whose kernels work in the host's memory; so does a node that is not placed yet.
bool RunsInHostMemory(const Node& node);

// True when the tensor is in the host's memory once it is made. A feed always is.
bool IsInHostMemory(const Endpoint& tensor);
// True when the node's kernel wants input i in the host's memory.
bool WantsHostMemory(const Node& node, int i);

struct HostMemoryRegistration {
  // With a dtype: only where the argument has it.
  HostMemoryRegistration(const char* op, const char* device_type, const char* argument,
                         DType dtype = DType::kInvalid);
};

#define MILLRACE_HOST_MEMORY(op, ...) \
  static const ::millrace::HostMemoryRegistration MR_CONCAT(mr_host_memory_, __COUNTER__)(#op, __VA_ARGS__)

}  // namespace millrace
