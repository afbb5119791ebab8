#include "millrace/base/clock.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "millrace/base/timer.h"

namespace {

std::atomic<int64_t> jump_seconds{0};

}  // namespace

// The machine's clocks as this program sees them: the time of day is off by jump_seconds.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += jump_seconds;
  return static_cast<int>(result);
}

namespace millrace {
namespace {

constexpr absl::Duration kClockTestSoon = absl::Seconds(20);

class ClockTest : public ::testing::TestWithParam<int64_t> {
 protected:
  ~ClockTest() override { jump_seconds = 0; }
};

TEST_P(ClockTest, StaysSteadyWhenTheTimeOfDayIsSet) {
  const absl::Time before = Clock::Real()->Now(), wall_before = WallClock::Real()->Now();
  jump_seconds = GetParam();
  const absl::Duration passed = Clock::Real()->Now() - before;
  EXPECT_GE(passed, absl::ZeroDuration());
  EXPECT_LT(passed, kClockTestSoon);
  // The jump is there.
  const absl::Duration jumped = WallClock::Real()->Now() - wall_before;
  EXPECT_LT(absl::AbsDuration(jumped - absl::Seconds(GetParam())), kClockTestSoon);
}

TEST_P(ClockTest, WaitsAndTimersEndInTheirTimeWhenTheTimeOfDayIsSet) {
  Notification fired, never;
  const absl::Time before = Clock::Real()->Now();
  TimerQueue::Real()->Schedule(absl::Milliseconds(20), [&] { fired.Notify(); });
  jump_seconds = GetParam();
  EXPECT_TRUE(fired.WaitFor(kClockTestSoon));
  EXPECT_FALSE(never.WaitFor(absl::Milliseconds(20)));
  EXPECT_GE(Clock::Real()->Now() - before, absl::Milliseconds(20));
  EXPECT_LT(Clock::Real()->Now() - before, 2 * kClockTestSoon);
}

INSTANTIATE_TEST_SUITE_P(Jumps, ClockTest, ::testing::Values(60, 365 * 86400, -3600, -365 * 86400));

TEST(VirtualWallClockTest, IsSetAheadAndBack) {
  VirtualWallClock wall(absl::FromUnixSeconds(1000));
  wall.Advance(absl::Hours(1));
  EXPECT_EQ(wall.Now(), absl::FromUnixSeconds(4600));
  wall.Set(absl::FromUnixSeconds(10));
  EXPECT_EQ(wall.Now(), absl::FromUnixSeconds(10));
}

}  // namespace
}  // namespace millrace
