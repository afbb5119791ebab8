// Timers that a test advances by hand. For tests only.
#pragma once

#include <map>
#include <utility>

#include "millrace/base/mutex.h"
#include "millrace/base/timer.h"

namespace millrace {

class ManualTimers : public TimerQueue {
 public:
  Id Schedule(absl::Duration delay, absl::AnyInvocable<void()> closure) override {
    MutexLock lock(&mu_);
    const Id id = ++last_id_;
    timers_.emplace(std::make_pair(now_ + delay, id), std::move(closure));
    return id;
  }
  bool Cancel(Id id) override {
    MutexLock lock(&mu_);
    for (auto it = timers_.begin(); it != timers_.end(); ++it) {
      if (it->first.second != id) continue;
      timers_.erase(it);
      return true;
    }
    return false;
  }
  // Runs the timers that are due within `by`, in order, on this thread.
  void Advance(absl::Duration by) {
    const absl::Duration until = Now() + by;
    for (;;) {
      absl::AnyInvocable<void()> closure;
      {
        MutexLock lock(&mu_);
        if (timers_.empty() || timers_.begin()->first.first > until) {
          now_ = until;
          return;
        }
        now_ = timers_.begin()->first.first;
        closure = std::move(timers_.begin()->second);
        timers_.erase(timers_.begin());
      }
      closure();
    }
  }

 private:
  absl::Duration Now() {
    MutexLock lock(&mu_);
    return now_;
  }

  Mutex mu_;
  absl::Duration now_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();
  Id last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::pair<absl::Duration, Id>, absl::AnyInvocable<void()>> timers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
