// Asking the tasks of a job what they wait for.
//
// Another process does it: the launcher has one thread, which may not wait for an answer, and keeps clear of gRPC and its threads.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::launch {

struct HangAnswer {
  std::string cause;  // empty: nothing hangs, as far as the tasks tell
  std::vector<std::string> waits;
};

// The launcher's side: a question in flight.
class HangQuestion {
 public:
  // `millrace` is this program's file; `tasks` are "worker/0=host:port".
  static StatusOr<HangQuestion> Ask(const std::string& millrace, absl::Duration limit, const std::vector<std::string>& tasks);

  pid_t pid() const { return pid_; }  // 0 when it has been waited for
  void OnReaped() { pid_ = 0; }
  int fd() const { return fd_.get(); }
  // Call when the descriptor can be read. True once all was said.
  bool Read();
  HangAnswer answer() const;

 private:
  HangQuestion(pid_t pid, Fd fd) : pid_(pid), fd_(std::move(fd)) {}
  pid_t pid_;
  Fd fd_;
  std::string text_;
};

// The other side, a process of its own: asks the tasks and writes the answer to stdout. Returns the exit code. `arguments`: the limit in seconds, then tasks.
// Tasks that are not Millrace's, or do not serve yet, are passed over.
int AnswerHangQuestion(const std::vector<std::string>& arguments);

}  // namespace millrace::launch
