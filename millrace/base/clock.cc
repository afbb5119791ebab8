#include "millrace/base/clock.h"

#include <chrono>

namespace millrace {
namespace {

// Not absl::Now, which extrapolates from an earlier reading for a while.
absl::Time TimeOfDay() { return absl::FromChrono(std::chrono::system_clock::now()); }

class RealClock : public Clock {
 public:
  absl::Time Now() override { return begin_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_begin_); }

 private:
  const absl::Time begin_ = TimeOfDay();
  const std::chrono::steady_clock::time_point steady_begin_ = std::chrono::steady_clock::now();
};

class RealWallClock : public WallClock {
 public:
  absl::Time Now() override { return TimeOfDay(); }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

WallClock* WallClock::Real() {
  static RealWallClock* const clock = new RealWallClock;
  return clock;
}

absl::Time VirtualWallClock::Now() {
  MutexLock lock(&mu_);
  return now_;
}

void VirtualWallClock::Set(absl::Time now) {
  MutexLock lock(&mu_);
  now_ = now;
}

absl::Time VirtualClock::Now() {
  MutexLock lock(&mu_);
  return now_;
}

void VirtualClock::Advance(absl::Duration by) {
  MutexLock lock(&mu_);
  now_ += by;
}

}  // namespace millrace
