// Reading the memory of another process of this host.
#pragma once

#include <sys/types.h>

#include <array>

#include "absl/types/span.h"
#include "millrace/base/status.h"

namespace millrace::net {

struct MemoryCopy {
  void* to = nullptr;
  uint64_t from = 0;  // address in the other process
  size_t size = 0;
};

// Copies everything, or says why not: PERMISSION_DENIED when the system does not allow it, UNAVAILABLE when the process is gone or
// has no such memory.
Status ReadMemory(pid_t process, absl::Span<const MemoryCopy> copies);

// Bytes that the other side of a connection finds at an address, if it can read there at all.
using MemoryProbe = std::array<char, 32>;
Status CheckProbe(pid_t process, uint64_t address, const MemoryProbe& expected);

// Lets other processes of this user read this one's memory, where the system asks for that (Yama). Once is enough.
void AllowMemoryReads();

}  // namespace millrace::net
