#include "millrace/base/affinity.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/affinity_testing.h"
#include "millrace/base/thread_group.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

TEST(Affinity, BoundThreadsAndThoseTheyStartKnowOnlyTheirCores) {
  const std::vector<int> before = AllowedCores();
  ASSERT_FALSE(before.empty());
  EXPECT_EQ(AllowedCoreCount(), before.size());
  // In a thread of its own: the other tests run where they did.
  std::thread([&] {
    EXPECT_TRUE(BindToCores({before.back()}).ok());
    EXPECT_THAT(AllowedCores(), ElementsAre(before.back()));
    EXPECT_EQ(AllowedCoreCount(), 1);
    std::thread([] { EXPECT_EQ(AllowedCoreCount(), 1); }).join();
  }).join();
  EXPECT_EQ(AllowedCores(), before);
}

TEST(Affinity, AThreadFollowsAnotherThatStaysWhereItIs) {
  const std::vector<int> before = AllowedCores();
  const int all = static_cast<int>(before.size());
  std::thread([&] {
    {
      CoreFollower follower;
      follower.Follow(before.back());
      EXPECT_EQ(follower.core(), -1);  // may be chance
      follower.Follow(before.back());
      EXPECT_EQ(follower.core(), before.back());
      EXPECT_EQ(CoresOfThisThread(), 1);
      EXPECT_EQ(CurrentCore(), before.back());
      // It does not do so for good, and pools that are made meanwhile are not smaller.
      EXPECT_EQ(AllowedCores(), before);
      ThreadGroup group("test");
      EXPECT_TRUE(group.Start([&] { EXPECT_EQ(CoresOfThisThread(), all); }));
      EXPECT_EQ(follower.core(), -1);

      for (int i = 0; i < 2; ++i) follower.Follow(before.front());
      EXPECT_EQ(CurrentCore(), before.front());
      // One that it cannot follow.
      for (int i = 0; i < 2; ++i) follower.Follow(before.back() + 1);
      EXPECT_EQ(CoresOfThisThread(), all);
      for (int i = 0; i < 2; ++i) follower.Follow(before.front());
      for (int i = 0; i < 2; ++i) follower.Follow(-1);
      EXPECT_EQ(CoresOfThisThread(), all);
      for (int i = 0; i < 2; ++i) follower.Follow(before.front());
    }
    EXPECT_EQ(CoresOfThisThread(), all);
  }).join();
}

TEST(Affinity, CoresThatAreNotThereAreRefusedByName) {
  const std::vector<int> before = AllowedCores();
  for (const std::vector<int>& none : {std::vector<int>{}, {-1}, {1 << 30}, {9000, 9001}}) {
    const Status bound = BindToCores(none);
    EXPECT_EQ(bound.code(), absl::StatusCode::kFailedPrecondition) << CoreList(none);
    EXPECT_THAT(std::string(bound.message()), ::testing::HasSubstr(CoreList(none)));
  }
  EXPECT_EQ(AllowedCores(), before);
}

TEST(Affinity, ListsOfCoresReadAsLinuxWritesThem) {
  EXPECT_EQ(CoreList({}), "");
  EXPECT_EQ(CoreList({5}), "5");
  EXPECT_EQ(CoreList({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(CoreList({32, 0, 33, 1}), "0-1,32-33");
}

}  // namespace
}  // namespace millrace
