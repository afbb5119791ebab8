#include "millrace/base/watch_patience.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(WatchPatienceTest, IsShortAtFirst) { EXPECT_EQ(WatchPatience().limit(), WatchPatience::kShort); }

TEST(WatchPatienceTest, IsLongAfterAWaitThatALongPollWouldHaveCovered) {
  WatchPatience patience;
  patience.Outlasted(std::chrono::milliseconds(1));
  EXPECT_EQ(patience.limit(), WatchPatience::kLong);
}

TEST(WatchPatienceTest, StaysShortForWaitsThatNoPollCovers) {
  WatchPatience patience;
  patience.Outlasted(WatchPatience::kLong - WatchPatience::kShort);
  EXPECT_EQ(patience.limit(), WatchPatience::kShort);
}

TEST(WatchPatienceTest, IsShortAgainWhenALongPollWasInVain) {
  WatchPatience patience;
  patience.Outlasted(std::chrono::milliseconds(1));
  patience.Outlasted(std::chrono::milliseconds(1));
  EXPECT_EQ(patience.limit(), WatchPatience::kShort);
}

}  // namespace
}  // namespace millrace
