// A wait of the training program itself: for a server, for the chief, for a step. Its name is shown in the log, by the
// launcher and in the hang report.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/status.h"

namespace millrace {

class WaitRegistry;

// How a program waits. Tests inject a virtual clock here, and simulations their threads.
struct WaitSettings {
  Clock* clock = Clock::Real();
  // Sleeps for that time, or less if waiting has become pointless. Null sleeps on the real clock.
  std::function<void(absl::Duration)> pause = nullptr;
  // Called before each pause; an error that it returns ends the wait. May be null.
  std::function<Status()> give_up = nullptr;
  // The longest pause between two polls. Pauses start short and grow with the time waited.
  absl::Duration max_poll_interval = absl::Seconds(1);
  // See CoordinatorOptions. Needs a `pause` that lets the other threads go on.
  std::function<bool(absl::AnyInvocable<void()> body)> start_thread = nullptr;
};

// Used by the waiting thread only.
class NamedWait {
 public:
  // `who` names the waiting party in messages. `registry` lists the wait; may be null.
  NamedWait(std::string who, WaitSettings settings, absl::Duration max_wait, std::shared_ptr<WaitRegistry> registry);
  // Ends the wait and removes it from the registry.
  ~NamedWait();
  NamedWait(const NamedWait&) = delete;

  // Pauses before the next poll for `what` ("worker/0 (the chief) to initialise w, b"). Logs the wait after one second
  // and then at growing intervals, and reports a new `what` to the launcher. `peer` is the task that is waited for,
  // "/job:worker/replica:0/task:0"; empty if it is none or unknown. Returns DEADLINE_EXCEEDED, naming `what`, after
  // `max_wait`.
  Status Again(const std::string& what, const std::string& peer = "");

  absl::Duration waited() const { return settings_.clock->Now() - begun_; }
  absl::Duration left() const { return max_wait_ - waited(); }

 private:
  const std::string who_;
  const WaitSettings settings_;
  const absl::Duration max_wait_;
  const std::shared_ptr<WaitRegistry> registry_;
  const absl::Time begun_;
  std::string what_;
  uint64_t wait_ = 0;
  absl::Duration next_log_ = absl::Seconds(1);
};

// The wait registry of the server in this process that has this target, which is what the server's status lists; null
// if there is no such server.
std::shared_ptr<WaitRegistry> WaitsOfServer(const std::string& target);

}  // namespace millrace
