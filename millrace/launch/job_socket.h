// How `millrace status` finds the jobs of this machine: each launcher listens on an abstract Unix socket whose name
// contains its user and pid.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// The launcher's side. Answers only the same user and root. Not thread-safe; never blocks.
class JobSocket {
 public:
  static StatusOr<JobSocket> Open();

  // The descriptors to poll: the first for reading (new connections), the others for writing.
  std::vector<int> fds() const;
  // Accepts connections and sends them what `tell` returns, as far as possible without blocking.
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

// The pids of this user's running launchers on this machine.
std::vector<int> RunningJobs();
// The job's report as JSON. NOT_FOUND if there is no such job, PERMISSION_DENIED if it belongs to another user.
StatusOr<std::string> AskJob(int pid, absl::Duration timeout);

}  // namespace millrace::launch
