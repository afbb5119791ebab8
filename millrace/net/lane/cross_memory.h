// Reads the memory of another process on this host.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>

#include "absl/types/span.h"
#include "millrace/base/status.h"

namespace millrace::net {

struct MemoryCopy {
  void* to = nullptr;
  uint64_t from = 0;  // an address in the other process
  size_t size = 0;
};

// Performs all copies. PERMISSION_DENIED if the system does not allow it, UNAVAILABLE if the process is gone or has no
// such memory.
Status ReadMemory(pid_t process, absl::Span<const MemoryCopy> copies);

// Random bytes at a known address, by which the other side of a connection checks that it can read this process's
// memory.
using MemoryProbe = std::array<char, 32>;
Status CheckProbe(pid_t process, uint64_t address, const MemoryProbe& expected);

// The memory of the other side of a connection. Thread-safe.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // As ReadMemory.
  virtual Status Read(absl::Span<const MemoryCopy> copies) const = 0;
};
// The memory of a process on this host; an error if `probe` is not found at `address`.
StatusOr<std::shared_ptr<const PeerMemory>> OpenProcessMemory(pid_t process, uint64_t address,
                                                              const MemoryProbe& probe);

// Allows other processes of this user to read this process's memory, if the system requires that (Yama). Calling it
// once is enough.
void AllowMemoryReads();

}  // namespace millrace::net
