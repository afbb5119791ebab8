// When callers give up.
#pragma once

#include <map>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"

namespace millrace::net {

// Thread-safe. Most calls are answered long before, so there is one timer for all of them, set anew only for an earlier one or when it has run.
class LaneDeadlines {
 public:
  using Id = std::pair<absl::Time, uint64_t>;
  using Closure = absl::AnyInvocable<void()>;

  LaneDeadlines(TimerQueue* timers, Clock* clock) : timers_(timers), clock_(clock) {}
  // Nothing is waited for any more.
  ~LaneDeadlines();

  // `closure` runs on the thread of the timers and must be short.
  Id Add(absl::Time when, Closure closure);
  // Nothing happens when it has run or runs.
  void Remove(const Id& id);

 private:
  void SetTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnTimer(uint64_t number);

  TimerQueue* const timers_;
  Clock* const clock_;
  Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<Id, Closure> closures_ ABSL_GUARDED_BY(mu_);
  // Timers that are set, by number.
  std::map<uint64_t, TimerQueue::Id> timer_ids_ ABSL_GUARDED_BY(mu_);
  absl::Time timer_for_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

}  // namespace millrace::net
