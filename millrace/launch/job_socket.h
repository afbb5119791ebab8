// How `millrace status` and the dashboard find the jobs of this machine: each launcher listens on an abstract Unix
// socket whose name contains its user and pid. A client sends one request and reads the answer up to its end.
#pragma once

#include <poll.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/launch/job_request.h"

namespace millrace::launch {

// The launcher's side. Answers only the same user and root. Not thread-safe; never blocks, except for End.
class JobSocket {
 public:
  using Tell = std::function<std::string(const JobRequest&)>;

  static StatusOr<JobSocket> Open();

  // What to poll for.
  std::vector<pollfd> polls() const;
  // Accepts connections, reads requests and sends what `tell` returns for them, as far as possible without blocking.
  void Serve(const Tell& tell);
  // Answers those who asked for the end, and blocks for at most `patience` until they have read it.
  void End(const std::string& report, absl::Duration patience);

 private:
  struct Client {
    Fd fd;
    std::string request = {};  // as far as it has come
    bool answered = false;     // `text` is its answer
    bool awaits_end = false;
    std::string text = {};
  };
  explicit JobSocket(Fd listener) : listener_(std::move(listener)) {}
  // Returns whether the client is still connected.
  static bool Continue(Client* client, const Tell& tell);
  static bool Receive(Client* client, const Tell& tell);
  static bool Send(Client* client);

  Fd listener_;
  std::vector<Client> clients_;
};

// The pids of this user's running launchers on this machine.
std::vector<int> RunningJobs();
// The answer of a job: its report as JSON, by default. NOT_FOUND if there is no such job, PERMISSION_DENIED if it
// belongs to another user.
StatusOr<std::string> AskJob(int pid, absl::Duration timeout, const JobRequest& request = {});

// Waits for the end of a job. Not thread-safe.
class JobEnd {
 public:
  static StatusOr<JobEnd> Watch(int pid);

  // Blocks for at most `timeout`, or until `wake` (a descriptor; -1: none) is readable. Returns whether the job has
  // ended.
  bool Wait(absl::Duration timeout, int wake = -1);
  // The last report, as JSON; empty if the launcher was killed before it could send one.
  const std::string& report() const { return report_; }

 private:
  explicit JobEnd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
  std::string report_;
  bool ended_ = false;
};

}  // namespace millrace::launch
