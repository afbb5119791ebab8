#include "millrace/base/background_pace.h"

#include <atomic>

#include "gtest/gtest.h"
#include "millrace/base/clock.h"
#include "millrace/base/thread_group.h"

namespace millrace {
namespace {

// So long a piece of work that a look after it says something of the others.
constexpr absl::Duration kPiece = absl::Milliseconds(5);
constexpr absl::Duration kSoon = absl::Seconds(30);

void WorkFor(absl::Duration duration) {
  const absl::Time end = Clock::Real()->Now() + duration;
  while (Clock::Real()->Now() < end) {
  }
}

// Works and rests until Rest says `busy`; false when that takes too long. What the last rest took is in `rested`.
bool WorkUntil(bool busy, BackgroundPace* pace, absl::Duration* rested) {
  const absl::Time deadline = Clock::Real()->Now() + kSoon;
  while (Clock::Real()->Now() < deadline) {
    WorkFor(kPiece);
    const absl::Time before = Clock::Real()->Now();
    const bool found = pace->Rest();
    *rested = Clock::Real()->Now() - before;
    if (found == busy) return true;
  }
  return false;
}

// A thread that uses a core until it is told to stop.
class BusyThread {
 public:
  BusyThread() {
    EXPECT_TRUE(threads_.Start([this] {
      while (!stop_) {
      }
    }));
  }
  ~BusyThread() { stop_ = true; }

 private:
  std::atomic<bool> stop_{false};
  ThreadGroup threads_{"busy"};  // waits for its thread
};

TEST(BackgroundPaceTest, WorkThatIsAloneDoesNotRest) {
  BackgroundPace pace;
  absl::Duration rested;
  EXPECT_TRUE(WorkUntil(/*busy=*/false, &pace, &rested));
}

TEST(BackgroundPaceTest, WorkBesideABusyThreadRestsTenTimesAsLongAsItTook) {
  const BusyThread other;
  BackgroundPace pace;
  absl::Duration rested;
  ASSERT_TRUE(WorkUntil(/*busy=*/true, &pace, &rested));
  EXPECT_GE(rested, 10 * kPiece);
}

TEST(BackgroundPaceTest, WorkThatIsLateRestsLessAndInTheEndNotAtAll) {
  const BusyThread other;
  VirtualClock clock;
  BackgroundPace pace(&clock);
  absl::Duration rested;
  clock.Advance(3 * BackgroundPace::kDoubles);
  ASSERT_TRUE(WorkUntil(/*busy=*/true, &pace, &rested));
  EXPECT_GE(rested, kPiece);  // 10/8 of it
  clock.Advance(BackgroundPace::kDoubles);
  // The others are as busy as before.
  absl::Duration total;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(WorkUntil(/*busy=*/true, &pace, &rested));
    total += rested;
  }
  EXPECT_LT(total, 20 * kPiece);
}

TEST(BackgroundPaceTest, ARestIsShortEnoughForACancelledPieceOfWork) {
  const BusyThread other;
  BackgroundPace pace;
  WorkFor(absl::Milliseconds(300));
  const absl::Time before = Clock::Real()->Now();
  pace.Rest();
  EXPECT_LT(Clock::Real()->Now() - before, absl::Seconds(2));  // not the three that ten times as long would be
}

}  // namespace
}  // namespace millrace
