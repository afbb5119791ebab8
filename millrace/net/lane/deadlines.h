// Timeouts of calls.
#pragma once

#include <map>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"

namespace millrace::net {

// Thread-safe. Most calls are answered long before their deadline, so one timer serves all of them; it is reset only
// for an earlier deadline or when it has run.
class LaneDeadlines {
 public:
  using Id = std::pair<absl::Time, uint64_t>;
  using Closure = absl::AnyInvocable<void()>;

  LaneDeadlines(TimerQueue* timers, Clock* clock) : timers_(timers), clock_(clock) {}
  // Cancels all deadlines.
  ~LaneDeadlines();

  // `closure` runs on the timers' thread and must be short.
  Id Add(absl::Time when, Closure closure);
  // Has no effect if the closure has run or is running.
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
