#include "millrace/net/lane/cross_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace millrace::net {
namespace {

// The maximum per system call; the system's own limit is 2 GiB.
constexpr size_t kMostBytes = size_t{1} << 30;
constexpr size_t kMostCopies = 64;

Status ReadError(pid_t process, int error) {
  if (error == EPERM || error == ENOSYS) {
    return absl::PermissionDeniedError(
        absl::StrCat("the system does not let process ", process, "'s memory be read: ", std::strerror(error)));
  }
  return Unavailable("the memory of process ", process, " cannot be read: ", std::strerror(error));
}

class ProcessMemory final : public PeerMemory {
 public:
  explicit ProcessMemory(pid_t process) : process_(process) {}
  Status Read(absl::Span<const MemoryCopy> copies) const override { return ReadMemory(process_, copies); }

 private:
  const pid_t process_;
};

}  // namespace

Status ReadMemory(pid_t process, absl::Span<const MemoryCopy> copies) {
  size_t copy = 0;
  size_t at = 0;  // the position within the copy
  while (copy < copies.size()) {
    iovec to[kMostCopies];
    iovec from[kMostCopies];
    size_t count = 0;
    size_t bytes = 0;
    for (size_t i = copy, start = at; i < copies.size() && count < kMostCopies && bytes < kMostBytes; ++i, start = 0) {
      const size_t size = std::min(copies[i].size - start, kMostBytes - bytes);
      to[count] = {static_cast<char*>(copies[i].to) + start, size};
      from[count] = {reinterpret_cast<void*>(copies[i].from + start), size};
      bytes += size;
      ++count;
    }
    const ssize_t got = process_vm_readv(process, to, count, from, count, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      return ReadError(process, errno);
    }
    // After a short read, the next attempt returns the reason.
    if (got == 0) return ReadError(process, EFAULT);
    for (size_t left = static_cast<size_t>(got); left > 0;) {
      const size_t step = std::min(left, copies[copy].size - at);
      left -= step;
      at += step;
      if (at == copies[copy].size) {
        ++copy;
        at = 0;
      }
    }
  }
  return absl::OkStatus();
}

Status CheckProbe(pid_t process, uint64_t address, const MemoryProbe& expected) {
  MemoryProbe found;
  const MemoryCopy copy{found.data(), address, found.size()};
  MR_RETURN_IF_ERROR(ReadMemory(process, absl::MakeConstSpan(&copy, 1)));
  if (found != expected) return Unavailable("process ", process, " is not the one that connected");
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<const PeerMemory>> OpenProcessMemory(pid_t process, uint64_t address,
                                                              const MemoryProbe& probe) {
  MR_RETURN_IF_ERROR(CheckProbe(process, address, probe));
  return std::make_shared<const ProcessMemory>(process);
}

void AllowMemoryReads() {
  static const bool done = [] {
    std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
    int scope = 0;
    if (file >> scope && scope == 1) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace millrace::net
