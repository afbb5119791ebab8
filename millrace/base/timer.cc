#include "millrace/base/timer.h"

#include <pthread.h>

#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/affinity.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

class RealTimerQueue : public TimerQueue {
 public:
  Id Schedule(absl::Duration delay, absl::AnyInvocable<void()> closure) override {
    const SteadyTime due = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(delay);
    MutexLock lock(&mu_);
    const Id id = next_id_++;
    due_of_[id] = due;
    timers_.emplace(std::make_pair(due, id), std::move(closure));
    if (!started_) {
      started_ = true;
      CoreFollower::LeaveHere();
      // Never joined: timers may be set until the process ends.
      std::thread thread([this] { Loop(); });
      pthread_setname_np(thread.native_handle(), "timers");
      thread.detach();
    }
    changed_.SignalAll();
    return id;
  }

  bool Cancel(Id id) override {
    MutexLock lock(&mu_);
    if (auto it = due_of_.find(id); it != due_of_.end()) {
      timers_.erase({it->second, id});
      due_of_.erase(it);
      return true;
    }
    while (running_ == id) finished_.Wait(&mu_);
    return false;
  }

 private:
  void Loop() {
    mu_.Lock();
    for (;;) {
      if (timers_.empty()) {
        changed_.Wait(&mu_);
        continue;
      }
      const auto first = timers_.begin();
      const auto left = first->first.first - std::chrono::steady_clock::now();
      if (left > std::chrono::nanoseconds(0)) {
        changed_.WaitFor(&mu_, absl::FromChrono(left));
        continue;
      }
      running_ = first->first.second;
      auto closure = std::move(first->second);
      due_of_.erase(running_);
      timers_.erase(first);
      mu_.Unlock();
      closure();
      closure = nullptr;
      mu_.Lock();
      running_ = 0;
      finished_.SignalAll();
    }
  }

  Mutex mu_;
  CondVar changed_;
  CondVar finished_;
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  Id next_id_ ABSL_GUARDED_BY(mu_) = 1;
  Id running_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::pair<SteadyTime, Id>, absl::AnyInvocable<void()>> timers_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Id, SteadyTime> due_of_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

TimerQueue* TimerQueue::Real() {
  static RealTimerQueue* const queue = new RealTimerQueue;
  return queue;
}

}  // namespace millrace
