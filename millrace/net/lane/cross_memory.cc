#include "millrace/net/lane/cross_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "millrace/base/mutex.h"

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

// More ancestors than a process has.
constexpr size_t kLongestDescent = 1000;

// 0 if there is no such process or it has no parent.
pid_t ParentOf(pid_t process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  std::string text;
  std::getline(file, text);
  // The name, in parentheses, may hold anything.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream rest(text.substr(end + 1));
  char state = 0;
  pid_t parent = 0;
  return rest >> state >> parent ? parent : 0;
}

// In a container's own namespace, process 1 is the container's, not the host's.
bool InHostsPidNamespace() {
  char text[64];
  const ssize_t size = readlink("/proc/self/ns/pid", text, sizeof(text));
  return size < 0 || absl::string_view(text, static_cast<size_t>(size)) == "pid:[4026531836]";
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

pid_t CommonAncestor(pid_t a, pid_t b, absl::FunctionRef<pid_t(pid_t)> parent) {
  std::vector<pid_t> of_a;
  // Bounded: a parent may end, and its number be used again, while the chain is read.
  for (pid_t at = a; at > 0 && of_a.size() < kLongestDescent; at = parent(at)) of_a.push_back(at);
  size_t steps = 0;
  for (pid_t at = b; at > 0 && steps < kLongestDescent; at = parent(at), ++steps) {
    if (std::find(of_a.begin(), of_a.end(), at) != of_a.end()) return at;
  }
  return 0;
}

Status AllowMemoryReads(pid_t peer) {
  static const bool restricted = [] {
    std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
    int scope = 0;
    return file >> scope && scope == 1;
  }();
  if (!restricted || peer == getpid()) return absl::OkStatus();
  static Mutex mu;
  static pid_t allowed = 0;  // with its descendants; guarded by mu
  MutexLock lock(&mu);
  // The system forgets a process that has ended.
  const pid_t wanted = allowed != 0 && ParentOf(allowed) != 0 ? CommonAncestor(allowed, peer, ParentOf) : peer;
  if (wanted == allowed) return absl::OkStatus();
  if (wanted == 0 || (wanted == 1 && InHostsPidNamespace()))
    return FailedPrecondition("this process would have to let all processes of its user read its memory");
  if (prctl(PR_SET_PTRACER, static_cast<unsigned long>(wanted), 0, 0, 0) != 0)
    return Unavailable("PR_SET_PTRACER: ", std::strerror(errno));
  allowed = wanted;
  return absl::OkStatus();
}

}  // namespace millrace::net
