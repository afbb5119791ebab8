// The upper limit of a single allocation.
#pragma once

#include <cstddef>

namespace millrace {

// The memory of the machine or of the cgroup, whichever is less.
size_t MachineMemory();

// Allocators reject a single allocation larger than this, so that an absurd size in a graph gives RESOURCE_EXHAUSTED
// instead of waking the kernel's OOM killer. The default is MachineMemory().
size_t MaxAllocation();

// For tests, and for a process that shares its machine. Thread-safe.
void SetMaxAllocation(size_t bytes);

}  // namespace millrace
