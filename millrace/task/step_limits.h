// What ends a step early: its timeout, or cancellation by its caller.
#pragma once

#include <atomic>

#include "absl/time/time.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/timer.h"

namespace millrace {

struct StepLimits {
  // DEADLINE_EXCEEDED when the step takes longer.
  absl::Duration timeout = absl::InfiniteDuration();
  // The caller's cancellation; may be null. Must outlive the step.
  CancellationManager* cancellation = nullptr;
};

// Enforces the limits of a step while this object lives. `step` is the step's cancellation and must outlive it.
class LimitWatch {
 public:
  explicit LimitWatch(CancellationManager* step) : step_(step) {}
  ~LimitWatch();
  LimitWatch(const LimitWatch&) = delete;
  LimitWatch& operator=(const LimitWatch&) = delete;

  // Call it once. Returns the caller's status if it has cancelled already.
  Status Begin(const StepLimits& limits);
  // Converts the step's status to the one for the caller: DEADLINE_EXCEEDED if the step timed out, whatever error the
  // cancelled node returned.
  Status Result(Status status) const;

 private:
  CancellationManager* const step_;
  TimerQueue::Id timer_ = 0;
  std::atomic<bool> timed_out_{false};
  CancellationManager* outer_ = nullptr;
  CancellationManager::Token outer_token_ = 0;
};

}  // namespace millrace
