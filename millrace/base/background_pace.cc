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

BackgroundPace::BackgroundPace(Clock* clock) : clock_(clock), begun_(clock->Now()) {
  Measure();
  woke_ = since_;
}

void BackgroundPace::Measure() {
  process_ = Used(CLOCK_PROCESS_CPUTIME_ID);
  thread_ = Used(CLOCK_THREAD_CPUTIME_ID);
  since_ = Clock::Real()->Now();
  busy_ = false;
}

bool BackgroundPace::Rest() {
  const absl::Duration process = Used(CLOCK_PROCESS_CPUTIME_ID), thread = Used(CLOCK_THREAD_CPUTIME_ID);
  const absl::Duration worked = thread - thread_, passed = Clock::Real()->Now() - since_;
  const absl::Duration others = (process - process_) - worked;
  // Too short an interval to measure the others.
  if (passed < absl::Milliseconds(1)) return busy_;
  const absl::Duration awake = Clock::Real()->Now() - woke_;
  Measure();
  woke_ = since_;
  if (others < kBusy * passed) return false;
  busy_ = true;
  const int64_t doublings = (clock_->Now() - begun_) / kDoubles;
  if (doublings >= kMaxDoublings) return true;
  const double more = static_cast<double>(int64_t{1} << doublings);
  const absl::Duration rest =
      std::min(std::max(worked / (kShare * more) - passed, kRestAtLeast / more * awake), kLongestRest);
  if (rest <= absl::ZeroDuration()) return true;
  const timespec time = absl::ToTimespec(rest);
  nanosleep(&time, nullptr);
  woke_ = Clock::Real()->Now();
  return true;
}

}  // namespace millrace
