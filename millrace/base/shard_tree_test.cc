#include "millrace/base/shard_tree.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

TEST(ShardTree, TheLeftHalfIsAPowerOfTwo) {
  EXPECT_EQ((ShardRange{0, 8}.left()), (ShardRange{0, 4}));
  EXPECT_EQ((ShardRange{0, 5}.left()), (ShardRange{0, 4}));
  EXPECT_EQ((ShardRange{0, 5}.right()), (ShardRange{4, 5}));
  EXPECT_EQ((ShardRange{4, 6}.left()), (ShardRange{4, 5}));
  EXPECT_EQ((ShardRange{0, 3}.left()), (ShardRange{0, 2}));
}

TEST(ShardTree, OnlySomeRangesAreNodes) {
  EXPECT_TRUE(IsNode({0, 8}, 8));
  EXPECT_TRUE(IsNode({4, 8}, 8));
  EXPECT_TRUE(IsNode({5, 6}, 8));
  EXPECT_FALSE(IsNode({1, 3}, 8));
  EXPECT_FALSE(IsNode({0, 3}, 8));
  EXPECT_FALSE(IsNode({0, 9}, 8));
  EXPECT_FALSE(IsNode({3, 3}, 8));
  EXPECT_FALSE(IsNode({-1, 1}, 8));
}

TEST(ShardTree, ARankCombinesTheLargestNodesThatItHas) {
  EXPECT_THAT(EvenOwners(8, 3), ElementsAre(0, 0, 1, 1, 1, 2, 2, 2));
  const std::vector<int> owners = EvenOwners(8, 3);
  EXPECT_THAT(LargestNodes(owners, 0), ElementsAre(ShardRange{0, 2}));
  EXPECT_THAT(LargestNodes(owners, 1), ElementsAre(ShardRange{2, 4}, ShardRange{4, 5}));
  EXPECT_THAT(LargestNodes(owners, 2), ElementsAre(ShardRange{5, 6}, ShardRange{6, 8}));
  EXPECT_THAT(LargestNodes(EvenOwners(8, 1), 0), ElementsAre(ShardRange{0, 8}));
  EXPECT_THAT(LargestNodes(EvenOwners(2, 4), 0), ElementsAre());
}

}  // namespace
}  // namespace millrace
