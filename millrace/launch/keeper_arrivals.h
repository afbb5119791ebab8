// Keepers that come to the launcher, because a scheduler started them: those of `millrace place`, and of `millrace
// launch` within an allocation.
#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "millrace/launch/job_state.h"
#include "millrace/launch/meeting/meeting_place.h"
#include "millrace/launch/scheduler_step.h"

namespace millrace::launch {

// "1 ps + 2 worker": what all processes of a job must agree on.
std::string JobsText(const std::vector<TaskGroup>& groups);

// Single-threaded; `job` must outlive it. Without a meeting in the job's options it does nothing.
class KeeperArrivals {
 public:
  explicit KeeperArrivals(JobState* job) : job_(job) {}

  // Opens the meeting place.
  Status Open();
  // The tasks whose keepers are wanted now, other than that of this process. Starts them, or waits for them.
  void Want(const std::vector<int>& tasks);

  void AddTo(std::vector<pollfd>* fds) const;
  absl::Time next_timer() const;
  void Serve();
  // A task has waited for its keeper for too long: says which ones are missing, and ends the job.
  void OnMissing();
  void OnReaped(pid_t pid, int wait_status);
  SchedulerSteps* steps() { return &steps_; }

 private:
  bool IsAwaited(int task) const;
  std::string Refuse(const Arrival& arrival) const;
  void Admit(Arrival arrival);

  JobState* const job_;
  std::optional<MeetingPlace> place_;
  SchedulerSteps steps_;
  std::vector<bool> wanted_before_;
  int refusals_told_ = 0;
};

}  // namespace millrace::launch
