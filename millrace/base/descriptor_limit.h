// The limit on this process's file descriptors.
#pragma once

#include <cstdint>

namespace millrace {

// How many descriptors this process may have open at once (RLIMIT_NOFILE, the soft limit).
int64_t DescriptorLimit();

// Raises the soft limit to the hard one, so that a server of many peers does not need `ulimit -n` first. Returns the
// new limit. Programs that this process starts inherit it.
int64_t RaiseDescriptorLimit();

}  // namespace millrace
