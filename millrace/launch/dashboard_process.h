// The dashboard of a job as a process of its own, which the launcher starts and ends.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/launch/stream_lines.h"

namespace millrace::launch {

// Single-threaded. The process gets SIGTERM when the launcher is killed.
class DashboardProcess {
 public:
  // `millrace` is the path of this program, `flags` those of `millrace dashboard`.
  Status Start(const std::string& millrace, const std::vector<std::string>& flags);

  pid_t pid() const { return pid_; }  // 0 if it does not run
  void OnReaped(pid_t pid);
  // What it prints, to poll for reading; -1 if that has ended.
  int fd() const { return fd_.get(); }
  void Read(const std::function<void(absl::string_view line)>& tell);
  // Whether it has printed a line: the page's address, or why there is none.
  bool has_spoken() const { return has_spoken_; }
  void Signal(int number);

 private:
  pid_t pid_ = 0;
  Fd fd_;
  StreamLines lines_;
  bool has_spoken_ = false;
};

}  // namespace millrace::launch
