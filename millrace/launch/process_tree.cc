#include "millrace/launch/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "millrace/base/fd.h"

namespace millrace::launch {
namespace {

struct Stat {
  ProcessId id;
  char state = '?';
};

// /proc/PID/stat is "pid (name) state ppid ...", where the name may contain anything; the start time is the 22nd field.
std::optional<Stat> ReadStat(pid_t pid) {
  char path[64], text[1024];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return std::nullopt;
  const ssize_t size = read(fd.get(), text, sizeof(text) - 1);
  if (size <= 0) return std::nullopt;
  text[size] = 0;
  const char* at = std::strrchr(text, ')');
  if (at == nullptr) return std::nullopt;
  Stat stat = {.id = {.pid = pid}};
  int parent = 0;
  if (std::sscanf(at + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                  &stat.state, &parent, &stat.id.start) != 3) {
    return std::nullopt;
  }
  stat.id.parent = parent;
  return stat;
}

// Without a look at all processes of the machine, which many keepers that end together would take turns at.
bool HasNoChildren() {
  siginfo_t info;
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

std::vector<ProcessId> Below(pid_t root, const std::vector<pid_t>& except) {
  if (root == getpid() && HasNoChildren()) return {};
  std::unordered_map<pid_t, std::vector<Stat>> children;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return {};
  while (const dirent* entry = readdir(proc)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    if (const std::optional<Stat> stat = ReadStat(pid)) children[stat->id.parent].push_back(*stat);
  }
  closedir(proc);
  std::vector<ProcessId> found;
  std::vector<pid_t> next = {root};
  while (!next.empty()) {
    const pid_t parent = next.back();
    next.pop_back();
    for (const Stat& child : children[parent]) {
      if (std::find(except.begin(), except.end(), child.id.pid) != except.end()) continue;
      next.push_back(child.id.pid);
      if (child.state != 'Z' && child.state != 'X') found.push_back(child.id);
    }
  }
  return found;
}

}  // namespace

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<ProcessId> Descendants(pid_t root) { return Below(root, {}); }

bool SignalProcess(const ProcessId& process, int signal) {
  const Fd fd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!fd.ok()) return false;
  // The descriptor refers to whichever process has the pid now; the check that follows ensures that this is the one
  // that was meant.
  const std::optional<Stat> stat = ReadStat(process.pid);
  const bool same = stat && stat->id.start == process.start && stat->state != 'Z' && stat->state != 'X';
  return same && syscall(SYS_pidfd_send_signal, fd.get(), signal, nullptr, 0) == 0;
}

int SignalDescendants(int signal, const std::vector<pid_t>& except) {
  const std::vector<ProcessId> found = Below(getpid(), except);
  for (const ProcessId& process : found) SignalProcess(process, signal);
  return static_cast<int>(found.size());
}

}  // namespace millrace::launch
