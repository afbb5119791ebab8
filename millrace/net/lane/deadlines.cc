#include "millrace/net/lane/deadlines.h"

#include <algorithm>
#include <vector>

namespace millrace::net {

LaneDeadlines::~LaneDeadlines() {
  for (;;) {
    TimerQueue::Id id;
    {
      MutexLock lock(&mu_);
      if (timer_ids_.empty()) return;
      id = timer_ids_.begin()->second;
      timer_ids_.erase(timer_ids_.begin());
    }
    timers_->Cancel(id);
  }
}

LaneDeadlines::Id LaneDeadlines::Add(absl::Time when, Closure closure) {
  MutexLock lock(&mu_);
  const Id id(when, next_++);
  closures_.emplace(id, std::move(closure));
  SetTimer();
  return id;
}

void LaneDeadlines::Remove(const Id& id) {
  Closure closure;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto it = closures_.find(id);
  if (it == closures_.end()) return;
  closure = std::move(it->second);
  closures_.erase(it);
}

void LaneDeadlines::SetTimer() {
  if (closures_.empty() || closures_.begin()->first.first >= timer_for_) return;
  timer_for_ = closures_.begin()->first.first;
  const uint64_t number = next_++;
  const absl::Duration delay = std::max(timer_for_ - clock_->Now(), absl::ZeroDuration());
  timer_ids_.emplace(number, timers_->Schedule(delay, [this, number] { OnTimer(number); }));
}

void LaneDeadlines::OnTimer(uint64_t number) {
  std::vector<Closure> due;
  {
    MutexLock lock(&mu_);
    if (timer_ids_.erase(number) == 0) return;  // the destructor has begun
    const absl::Time now = clock_->Now();
    while (!closures_.empty() && closures_.begin()->first.first <= now) {
      due.push_back(std::move(closures_.begin()->second));
      closures_.erase(closures_.begin());
    }
    timer_for_ = absl::InfiniteFuture();
    SetTimer();
  }
  for (Closure& closure : due) closure();
}

}  // namespace millrace::net
