// Asking the tasks of a cluster whether they are there and what devices they have.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/cluster/master_session.h"
#include "millrace/cluster/peers.h"

namespace millrace {

struct FindTasksOptions {
  std::shared_ptr<Worker> worker = nullptr;        // the own task
  std::shared_ptr<const PeerSet> peers = nullptr;
  std::vector<std::string> device_filters = {};    // only tasks that one of them matches; none: all
  absl::Duration timeout = absl::InfiniteDuration();
  absl::Duration silence = absl::Seconds(5);       // of one question
  TimerQueue* timers = TimerQueue::Real();
  Clock* clock = Clock::Real();
};

// Asks all tasks again and again until each has answered; logs those that are missing after a second and then less and less often.
// Calls `done` once: with all tasks, the own one first; DEADLINE_EXCEEDED lists who is missing, and an error that a task answered is
// passed on naming it. Ends early with the cancellation's status.
void FindTasks(const FindTasksOptions& options, const CallControl& control,
               absl::AnyInvocable<void(StatusOr<std::vector<SessionTask>>)> done);

}  // namespace millrace
