#include "millrace/base/lookout.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr Lookout::Clock::duration kQuick = Lookout::kLimit / 2, kSlow = 3 * Lookout::kLimit;

// How many quick answers it takes until it looks out.
int Needed(Lookout* lookout) {
  int answers = 0;
  for (; !lookout->worthwhile(); ++answers) lookout->Waited(kQuick, false);
  return answers;
}

TEST(LookoutTest, BeginsAfterSomeQuickAnswers) {
  Lookout lookout;
  EXPECT_FALSE(lookout.worthwhile());
  const int needed = Needed(&lookout);
  EXPECT_GT(needed, 1);
  EXPECT_LT(needed, 20);
  lookout.Waited(kQuick, true);
  EXPECT_TRUE(lookout.worthwhile());
}

TEST(LookoutTest, ASlowAnswerEndsIt) {
  Lookout lookout;
  const int needed = Needed(&lookout);
  lookout.Waited(kSlow, false);
  EXPECT_FALSE(lookout.worthwhile());
  EXPECT_EQ(Needed(&lookout), needed);
}

TEST(LookoutTest, AnAnswerThatWasSleptForMayHaveTakenTheTimeToWakeAsWell) {
  Lookout lookout;
  for (int i = 0; i < 20; ++i) lookout.Waited(Lookout::kLimit + kQuick, false);
  EXPECT_TRUE(lookout.worthwhile());
  lookout.Waited(Lookout::kLimit + kQuick, true);
  EXPECT_FALSE(lookout.worthwhile());
}

TEST(LookoutTest, InVainItIsTriedEverMoreSeldomButNotNever) {
  Lookout lookout;
  int needed = Needed(&lookout);
  for (int i = 0; i < 3; ++i) {
    lookout.Waited(kSlow, true);
    const int now = Needed(&lookout);
    EXPECT_GT(now, needed);
    needed = now;
  }
  for (int i = 0; i < 100; ++i) {
    lookout.Waited(kSlow, true);
    needed = Needed(&lookout);
  }
  EXPECT_GE(needed, 100);
  EXPECT_LE(needed, 1000);
}

TEST(LookoutTest, WhenItServesAgainTheFailuresAreForgotten) {
  Lookout lookout;
  const int needed = Needed(&lookout);
  for (int i = 0; i < 5; ++i) {
    lookout.Waited(kSlow, true);
    Needed(&lookout);
  }
  for (int i = 0; i < 20; ++i) lookout.Waited(kQuick, true);
  lookout.Waited(kSlow, false);
  EXPECT_EQ(Needed(&lookout), needed);
}

}  // namespace
}  // namespace millrace
