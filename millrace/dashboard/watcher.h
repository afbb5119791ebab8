// Looks at a job or a cluster again and again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/tls_credentials.h"
#include "millrace/dashboard/observation.h"
#include "millrace/launch/job_socket.h"
#include "millrace/net/transport.h"

namespace millrace::dashboard {

struct WatcherOptions {
  int job = 0;                                          // the launcher's pid; 0: a cluster without a launcher
  std::string target = {};                              // "host:port" of any of its tasks
  std::shared_ptr<const TlsCredentials> tls = nullptr;  // for a target; a job's launcher gives its own
  absl::Duration timeout = absl::Seconds(1);            // for an answer
  absl::Duration hang_after = absl::Seconds(10);
  Ceilings ceilings = {};
  Clock* clock = Clock::Real();
};

// Not thread-safe; blocks.
class Watcher {
 public:
  explicit Watcher(WatcherOptions options);
  ~Watcher();

  // NOT_FOUND if there is no such job.
  Status Begin();
  // Asks the launcher and the tasks. `events_after` is the number of the last event that the caller has.
  Observation Look(int64_t events_after);
  // Blocks for at most `pause`, until `wake` is readable or the job has ended. After the end, Look returns the last
  // report.
  void Rest(absl::Duration pause, int wake);
  // Whether the end of the job is known.
  bool ended() const { return ended_; }
  // The end of a task's output, if there is a launcher.
  std::string Output(const std::string& task) const;

 private:
  void LookAtJob(int64_t events_after, Observation* look);
  void LookAtTasks(Observation* look);
  std::vector<TaskView> AskAll(const Observation& look);

  const WatcherOptions options_;
  const absl::Time began_;
  const absl::Time began_on_wall_;
  std::unique_ptr<net::Transport> transport_;
  std::optional<double> began_unix_;  // Observation::began, once it is known
  std::optional<launch::JobEnd> end_;
  std::optional<launch::JobReport> last_;
  bool ended_ = false;
  std::vector<TaskView> before_;
};

}  // namespace millrace::dashboard
