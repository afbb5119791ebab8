#include "millrace/collective/fixed_order.h"

#include <cstring>

#include "gtest/gtest.h"
#include "millrace/collective/collective_testing.h"

namespace millrace::collective {
namespace {

bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The result on `size` ranks of 8 shards (or others) whose values do not depend on the number of ranks.
std::vector<float> Reduced(int size, int shards, int64_t count, Reduction reduction, const std::vector<int>& owners) {
  InlineRanks ranks(size, [](int, GroupOptions* options) { options->chunk_bytes = 30000; });
  std::vector<std::vector<float>> values;
  for (int shard = 0; shard < shards; ++shard) values.push_back(UnevenValues(shard, count));
  std::vector<std::vector<float>> results(size, std::vector<float>(count));
  const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
    std::vector<ShardValue> own;
    for (int shard = 0; shard < shards; ++shard) {
      if (owners[shard] == rank) own.push_back({{shard, shard + 1}, values[shard].data()});
    }
    ranks[rank].FixedOrderAllReduce(own, ElementsOf(absl::MakeSpan(results[rank])), reduction, owners, {},
                                    std::move(done));
  });
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
    EXPECT_TRUE(SameBytes(results[rank], results[0])) << rank;
  }
  return results[0];
}

TEST(FixedOrder, AnyNumberOfRanksGivesTheSameBytes) {
  for (const int64_t count : {0, 1, 1000, 50000}) {
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMean, Reduction::kProduct}) {
      for (const int shards : {8, 5}) {
        const std::vector<float> one = Reduced(1, shards, count, reduction, EvenOwners(shards, 1));
        for (const int size : {2, 3, 4, 5, 8, 11}) {
          const std::vector<float> many = Reduced(size, shards, count, reduction, EvenOwners(shards, size));
          ASSERT_TRUE(SameBytes(one, many)) << size << " ranks, " << shards << " shards, " << count << " elements";
        }
      }
    }
  }
}

TEST(FixedOrder, TheOwnersOfTheShardsDoNotMatter) {
  const std::vector<float> one = Reduced(1, 8, 30000, Reduction::kSum, EvenOwners(8, 1));
  for (const std::vector<int>& owners : std::vector<std::vector<int>>{
           {0, 1, 2, 0, 1, 2, 0, 1}, {2, 2, 2, 2, 2, 2, 2, 2}, {0, 1, 1, 1, 1, 1, 1, 2}, {2, 1, 0, 2, 1, 0, 2, 1}}) {
    const std::vector<float> other = Reduced(3, 8, 30000, Reduction::kSum, owners);
    ASSERT_TRUE(SameBytes(one, other));
  }
}

TEST(FixedOrder, TheOrderIsThatOfTheTree) {
  const std::vector<float> result = Reduced(3, 8, 100, Reduction::kSum, EvenOwners(8, 3));
  std::vector<std::vector<float>> x;
  for (int shard = 0; shard < 8; ++shard) x.push_back(UnevenValues(shard, 100));
  bool order_matters = false;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(result[i], ((x[0][i] + x[1][i]) + (x[2][i] + x[3][i])) + ((x[4][i] + x[5][i]) + (x[6][i] + x[7][i])));
    float in_order = 0;
    for (int shard = 0; shard < 8; ++shard) in_order += x[shard][i];
    order_matters |= in_order != result[i];
  }
  EXPECT_TRUE(order_matters) << "the values do not show the order";
}

TEST(FixedOrder, SumsThatACallerHasCombinedAreUsedAsTheyAre) {
  InlineRanks ranks(2);
  constexpr int64_t kCount = 20000;
  std::vector<std::vector<float>> x;
  for (int shard = 0; shard < 8; ++shard) x.push_back(UnevenValues(shard, kCount));
  std::vector<float> combined(kCount);
  for (int64_t i = 0; i < kCount; ++i) combined[i] = (x[0][i] + x[1][i]) + (x[2][i] + x[3][i]);
  std::vector<std::vector<float>> results(2, std::vector<float>(kCount));
  const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
    std::vector<ShardValue> own = {{{0, 4}, combined.data()}};
    if (rank == 1) own = {{{4, 6}, x[4].data()}, {{6, 7}, x[6].data()}, {{7, 8}, x[7].data()}};
    ranks[rank].FixedOrderAllReduce(own, ElementsOf(absl::MakeSpan(results[rank])), Reduction::kSum, EvenOwners(8, 2),
                                    {}, std::move(done));
  });
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(results[0][i], combined[i] + (x[4][i] + (x[6][i] + x[7][i])));
    ASSERT_EQ(results[1][i], results[0][i]);
  }
}

TEST(FixedOrder, ValuesMustCoverTheRanksShardsOnce) {
  const std::vector<int> owners = EvenOwners(8, 2);
  const float data = 0;
  EXPECT_TRUE(CheckShardValues({{{0, 4}, &data}}, owners, 0).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShardValues({{{0, 2}, &data}}, owners, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShardValues({{{0, 4}, &data}, {{0, 1}, &data}}, owners, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShardValues({{{0, 8}, &data}}, owners, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShardValues({{{0, 3}, &data}, {{3, 4}, &data}}, owners, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckShardValues({}, {}, 0)));
}

}  // namespace
}  // namespace millrace::collective
