#include "millrace/base/background_pace.h"

#include <time.h>

#include <algorithm>

#include "millrace/base/clock.h"

namespace millrace {
namespace {

constexpr double kShare = 1.0 / 10;
constexpr double kBusy = 1.0 / 20;
// Time blocked on the disk also costs memory bandwidth and kernel time, so the sleep is at least ten times the time
// since the last one, blocked or not.
constexpr double kRestAtLeast = 10;
// Bounds how long cancelled work takes to notice.
constexpr absl::Duration kLongestRest = absl::Milliseconds(100);

absl::Duration Used(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

BackgroundPace::BackgroundPace()
    : process_(Used(CLOCK_PROCESS_CPUTIME_ID)),
      thread_(Used(CLOCK_THREAD_CPUTIME_ID)),
      since_(Clock::Real()->Now()),
      woke_(since_) {}

bool BackgroundPace::Rest() {
  const absl::Duration process = Used(CLOCK_PROCESS_CPUTIME_ID), thread = Used(CLOCK_THREAD_CPUTIME_ID);
  const absl::Duration worked = thread - thread_, passed = Clock::Real()->Now() - since_;
  const absl::Duration others = (process - process_) - worked;
  // Too short an interval to measure the others.
  if (passed < absl::Milliseconds(1)) return busy_;
  const absl::Duration awake = Clock::Real()->Now() - woke_;
  *this = BackgroundPace();
  if (others < kBusy * passed) return false;
  const absl::Duration rest = std::min(std::max(worked / kShare - passed, kRestAtLeast * awake), kLongestRest);
  const timespec time = absl::ToTimespec(rest);
  nanosleep(&time, nullptr);
  woke_ = Clock::Real()->Now();
  busy_ = true;
  return true;
}

}  // namespace millrace
