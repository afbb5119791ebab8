// The largest block of memory that a tensor may ask for.
#pragma once

#include <cstddef>

namespace millrace {

// Allocators refuse more than this at once, so that an absurd size in a graph is RESOURCE_EXHAUSTED and not a visit
// of the kernel's out-of-memory killer. By default the memory of the machine, or of the control group where it is less.
size_t MaxAllocation();

// For tests, and for a process that shares its machine. Thread-safe.
void SetMaxAllocation(size_t bytes);

}  // namespace millrace
