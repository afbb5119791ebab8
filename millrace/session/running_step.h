// A step in flight: how it is cancelled, from outside, by its time-out or by the session's end.
#pragma once

#include "millrace/base/timer.h"
#include "millrace/session/direct_session.h"

namespace millrace {

// Lives for the time of one step, on its caller's stack or in a partial run.
class DirectSession::RunningStep {
 public:
  explicit RunningStep(DirectSession* session) : session_(session) {}
  ~RunningStep();

  // Registers the step with its session. CANCELLED when that is closed.
  Status Begin(const RunOptions& options, absl::Duration default_timeout);
  CancellationManager* cancellation() { return &cancellation_; }
  // What the step's end means to the caller: a time-out that struck is DEADLINE_EXCEEDED, whatever the
  // node said that felt it.
  Status Result(Status status) const;

 private:
  friend class DirectSession;

  DirectSession* const session_;
  CancellationManager cancellation_;
  bool begun_ = false;
  TimerQueue::Id timer_ = 0;
  std::atomic<bool> timed_out_{false};
  CancellationManager* outer_ = nullptr;
  CancellationManager::Token outer_token_ = 0;
  // Guarded by the session's steps_mu_.
  bool told_to_stop_ = false;
  int pins_ = 0;
  RunningStep* next_ = nullptr;
  RunningStep* previous_ = nullptr;
};

}  // namespace millrace
