// Counts work in flight, so that an owner that stops can refuse new work and wait for the rest.
#pragma once

#include <atomic>
#include <cstdint>

#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"

namespace millrace {

// Thread-safe. Entering and leaving take no lock until Stop.
class StopGate {
 public:
  // Returns false once Stop was called; the caller has not entered then.
  [[nodiscard]] bool Enter() {
    if ((state_.fetch_add(kOne) & kStopping) == 0) return true;
    Leave();
    return false;
  }
  // The gate may be destroyed when the last one has left.
  void Leave() {
    if (state_.fetch_sub(kOne) == (kOne | kStopping)) NoteEmpty();
  }
  // Refuses everybody from now on. Who enters before it has done so before Stop returns.
  void Stop() {
    if (state_.fetch_or(kStopping) < kOne) NoteEmpty();
  }
  bool stopping() const { return (state_.load() & kStopping) != 0; }
  // Returns when everybody has left. Call Stop first.
  void Wait() {
    MutexLock lock(&mu_);
    while (!empty_) changed_.Wait(&mu_);
  }
  // Returns false if somebody is still inside after `timeout`.
  bool WaitFor(absl::Duration timeout) {
    const absl::Time deadline = Clock::Real()->Now() + timeout;
    MutexLock lock(&mu_);
    while (!empty_) {
      const absl::Duration left = deadline - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(&mu_, left);
    }
    return true;
  }

 private:
  static constexpr uint64_t kStopping = 1;
  static constexpr uint64_t kOne = 2;

  // Wait looks at the flag only, so that it does not return while Leave still needs the lock.
  void NoteEmpty() {
    MutexLock lock(&mu_);
    empty_ = true;
    changed_.SignalAll();
  }

  std::atomic<uint64_t> state_{0};
  Mutex mu_;
  CondVar changed_;
  bool empty_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace millrace
