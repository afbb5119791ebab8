// How `millrace status` finds the jobs of this machine: each launcher answers on an abstract Unix socket that its user and pid name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// The launcher's side. Tells the same user (and root) only. One thread; nothing waits.
class JobSocket {
 public:
  static StatusOr<JobSocket> Open();

  // To poll: the first for new connections, the others for writing.
  std::vector<int> fds() const;
  // Accepts and answers with what `tell` gives, as far as that goes without waiting.
  void Serve(const std::function<std::string()>& tell);

 private:
  struct Answer {
    Fd fd;
    std::string text;
  };
  explicit JobSocket(Fd listener) : listener_(std::move(listener)) {}
  Fd listener_;
  std::vector<Answer> answers_;
};

// The pids of this user's launchers that run on this machine.
std::vector<int> RunningJobs();
// What the job tells: JSON. NOT_FOUND when there is none, PERMISSION_DENIED when the socket is another user's.
StatusOr<std::string> AskJob(int pid, absl::Duration timeout);

}  // namespace millrace::launch
