// Asks the tasks of a job what they wait for.
//
// A separate process does this, because the launcher has a single thread that must not block, and no gRPC threads.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"

namespace millrace::launch {

struct HangAnswer {
  std::string cause;  // empty: nothing hangs, as far as the tasks know
  std::vector<std::string> waits;
};

// The launcher's side: a query in flight.
class HangQuestion {
 public:
  // Starts `millrace explain-hang` (tools/explain_hang.h). `millrace` is the path of this program; `tasks` are
  // "worker/0=host:port". `credentials` is null if they have no TLS.
  static StatusOr<HangQuestion> Ask(const std::string& millrace, absl::Duration limit,
                                    const std::vector<std::string>& tasks, const TlsCredentials* credentials);

  pid_t pid() const { return pid_; }  // 0 after OnReaped
  void OnReaped() { pid_ = 0; }
  int fd() const { return fd_.get(); }
  // Call when the descriptor is readable. Returns true once the answer is complete.
  bool Read();
  HangAnswer answer() const;

 private:
  HangQuestion(pid_t pid, Fd fd) : pid_(pid), fd_(std::move(fd)) {}
  pid_t pid_;
  Fd fd_;
  std::string text_;
};

}  // namespace millrace::launch
