// Contacts the tasks of a cluster and asks for their devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/cluster/master/master_session.h"
#include "millrace/cluster/worker/peers.h"

namespace millrace {

struct FindTasksOptions {
  std::shared_ptr<Worker> worker = nullptr;  // the worker of the master's own task
  std::shared_ptr<const PeerSet> peers = nullptr;
  std::vector<std::string> device_filters = {};  // only tasks that match one of these; if empty, all
  absl::Duration timeout = absl::InfiniteDuration();
  absl::Duration peer_timeout = absl::Seconds(5);  // for one request
  TimerQueue* timers = TimerQueue::Real();
  Clock* clock = Clock::Real();
};

// Asks all tasks repeatedly until each has answered; logs the missing ones after a second and then less and less often.
// Calls `done` once: with all tasks, the master's own first; with DEADLINE_EXCEEDED, which lists the missing tasks;
// with an error that a task answered, naming that task; or with the cancellation's status.
void FindTasks(const FindTasksOptions& options, const CallControl& control,
               absl::AnyInvocable<void(StatusOr<std::vector<SessionTask>>)> done);

}  // namespace millrace
