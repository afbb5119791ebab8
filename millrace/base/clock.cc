#include "millrace/base/clock.h"

#include "absl/time/clock.h"

namespace millrace {
namespace {

class RealClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
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
