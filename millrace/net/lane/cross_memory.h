// Reads the memory of another process on this host.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>

#include "absl/functional/function_ref.h"
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

// Allows the process `peer`, of this user, to read this process's memory, if the system requires that (Yama's
// ptrace_scope is 1). One process and its descendants can be allowed at a time, so if there are several peers it is
// their closest common ancestor: the launcher, for the tasks of a job. Never all processes of the user:
// FAILED_PRECONDITION, and nothing changes, if the peers have only the host's init in common.
Status AllowMemoryReads(pid_t peer);

// The closest process that both descend from or are; `parent` returns 0 for a process that does not exist or has no
// parent. 0 if there is none.
pid_t CommonAncestor(pid_t a, pid_t b, absl::FunctionRef<pid_t(pid_t)> parent);

}  // namespace millrace::net
