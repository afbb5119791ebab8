#include "millrace/data/worker_batches.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

// The first `count` batches, as lists of numbers.
std::vector<std::vector<int64_t>> Batches(const Dataset& dataset, int count) {
  std::vector<std::vector<int64_t>> result;
  std::unique_ptr<DatasetIterator> it = dataset.MakeIterator().value();
  std::vector<Tensor> element;
  for (int i = 0; i < count && it->Next(&element).value(); ++i) {
    const auto flat = element[0].flat<int64_t>();
    result.emplace_back(flat.begin(), flat.end());
  }
  return result;
}

std::vector<int64_t> UpTo(int64_t n) {
  std::vector<int64_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(WorkerBatchesTest, TheShardsOfAnEpochAreDisjointAndCoverAllAndEpochsDiffer) {
  for (const int64_t workers : {1, 2, 3, 5}) {
    // 60 examples an epoch; each worker's batch is one example here.
    std::vector<std::vector<std::vector<int64_t>>> each;
    for (int64_t i = 0; i < workers; ++i) {
      each.push_back(Batches(
          WorkerBatches(Dataset::Range(0, 60), {.num_workers = workers, .worker_index = i, .seed = 7}), 180 / workers));
    }
    std::vector<int64_t> stream;
    for (int64_t k = 0; k < 180 / workers; ++k) {
      for (const auto& batches : each) stream.push_back(batches[k][0]);
    }
    ASSERT_EQ(stream.size(), 180);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> seen(stream.begin() + 60 * epoch, stream.begin() + 60 * (epoch + 1));
      EXPECT_NE(seen, UpTo(60));
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, UpTo(60)) << "epoch " << epoch << ", " << workers << " workers";
    }
    EXPECT_FALSE(std::equal(stream.begin(), stream.begin() + 60, stream.begin() + 60)) << "two epochs have one order";
  }
}

TEST(WorkerBatchesTest, GlobalBatchesDoNotDependOnTheNumberOfWorkers) {
  const auto global = [](int64_t workers, int count) {
    std::vector<std::set<int64_t>> result(count);
    for (int64_t i = 0; i < workers; ++i) {
      // 50 examples: the batch of 12 goes over the end of an epoch.
      const auto mine = Batches(
          WorkerBatches(Dataset::Range(0, 50), {.num_workers = workers, .worker_index = i, .batch_size = 12 / workers}),
          count);
      for (int k = 0; k < count; ++k) result[k].insert(mine[k].begin(), mine[k].end());
    }
    return result;
  };
  const auto one = global(1, 20);
  for (const int64_t workers : {2, 3, 4, 6}) EXPECT_EQ(global(workers, 20), one) << workers << " workers";
}

TEST(WorkerBatchesTest, WithoutShufflingTheOrderStays) {
  EXPECT_THAT(
      Batches(WorkerBatches(Dataset::Range(0, 8),
                            {.num_workers = 2, .worker_index = 1, .batch_size = 2, .shuffle_buffer = -1, .repeat = 1}),
              9),
      testing::ElementsAre(testing::ElementsAre(1, 3), testing::ElementsAre(5, 7)));
}

TEST(WorkerBatchesTest, MistakesAreTold) {
  EXPECT_FALSE(WorkerBatches(Dataset::Range(0, 8), {.num_workers = 2, .worker_index = 2}).MakeIterator().ok());
  EXPECT_FALSE(WorkerBatches(Dataset::Range(0, 8), {.num_workers = 0}).MakeIterator().ok());
  EXPECT_FALSE(WorkerBatches(Dataset::Range(0, 8), {.batch_size = 0}).MakeIterator().ok());
}

}  // namespace
}  // namespace millrace
