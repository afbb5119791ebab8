// What the system says about a thread of this process. For tests only.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace millrace {

class ThreadState {
 public:
  // The number of this thread.
  static pid_t Here() { return static_cast<pid_t>(syscall(SYS_gettid)); }

  explicit ThreadState(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("State:\tS", 0) == 0) blocked_ = true;
      if (line.rfind("voluntary_ctxt_switches:", 0) == 0) times_blocked_ = std::atoll(line.c_str() + 24);
    }
  }

  // It waits for an event.
  bool blocked() const { return blocked_; }
  // How often it has done so.
  int64_t times_blocked() const { return times_blocked_; }

 private:
  bool blocked_ = false;
  int64_t times_blocked_ = 0;
};

}  // namespace millrace
