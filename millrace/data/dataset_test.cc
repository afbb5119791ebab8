#include "millrace/data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// Elements of two components: i as int64, and [i, -i] as float.
Dataset Numbers(int64_t n) {
  Tensor a(DType::kInt64, Shape({n})), b(DType::kFloat, Shape({n, 2}));
  for (int64_t i = 0; i < n; ++i) {
    a.data<int64_t>()[i] = i;
    b.data<float>()[2 * i] = static_cast<float>(i);
    b.data<float>()[2 * i + 1] = static_cast<float>(-i);
  }
  return Dataset::FromTensors({a, b}).value();
}

// A generator of scalars 0 .. n - 1 that counts how many it made.
Dataset Counting(int64_t n, std::atomic<int64_t>* made = nullptr) {
  return Dataset::FromGenerator([n, made](uint64_t) -> Generator {
    return [n, made, i = int64_t{0}](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
      if (i == n) return false;
      element->push_back(Tensor::Scalar<int64_t>(i++));
      if (made != nullptr) ++*made;
      return true;
    };
  });
}

// All numbers of the first component, at most `limit` elements of the dataset.
std::vector<int64_t> Walk(const Dataset& dataset, int64_t limit = 1000000, uint64_t epoch = 0) {
  std::vector<int64_t> all;
  std::unique_ptr<DatasetIterator> it = dataset.MakeIterator(epoch).value();
  std::vector<Tensor> element;
  for (int64_t i = 0; i < limit && it->Next(&element).value(); ++i) {
    const absl::Span<const int64_t> numbers = element[0].flat<int64_t>();
    all.insert(all.end(), numbers.begin(), numbers.end());
    if (element.size() < 2) continue;
    for (size_t j = 0; j < numbers.size(); ++j) {
      EXPECT_EQ(element[1].data<float>()[2 * j + 1], static_cast<float>(-numbers[j]));
    }
  }
  return all;
}

std::vector<int64_t> Iota(int64_t n) {
  std::vector<int64_t> v(n);
  std::iota(v.begin(), v.end(), 0);
  return v;
}

std::vector<int64_t> Sorted(std::vector<int64_t> v) {
  std::sort(v.begin(), v.end());
  return v;
}

Status ErrorOf(const Dataset& dataset) { return dataset.MakeIterator().status(); }

TEST(DatasetTest, TensorsAreWalkedRowByRow) {
  EXPECT_EQ(Walk(Numbers(5)), Iota(5));
  std::unique_ptr<DatasetIterator> it = Numbers(1).MakeIterator().value();
  std::vector<Tensor> element;
  ASSERT_TRUE(it->Next(&element).value());
  EXPECT_EQ(element[0].shape(), Shape());
  EXPECT_EQ(element[1].shape(), Shape({2}));
  EXPECT_FALSE(it->Next(&element).value());
  EXPECT_FALSE(it->Next(&element).value());
}

TEST(DatasetTest, TensorsThatDoNotFitAreAnError) {
  EXPECT_EQ(Dataset::FromTensors({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Dataset::FromTensors({Tensor::Scalar<float>(1)}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Dataset::FromTensors({Tensor::Of<float>({1}), Tensor::Of<float>({1, 2})}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DatasetTest, BadArgumentsAreReportedByMakeIterator) {
  const Dataset d = Numbers(3);
  for (const Dataset& bad : {d.Batch(0), d.Shuffle({.buffer_size = -1}), d.Shard(0, 0), d.Shard(2, 2), d.Shard(2, -1),
                             d.Take(-1), d.Skip(-1), d.Prefetch(0), d.Map(nullptr), d.Batch(-3).Repeat().Take(1),
                             d.Repeat().Batch(2).Shuffle(), Dataset::FromGenerator(nullptr)}) {
    EXPECT_EQ(ErrorOf(bad).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(ErrorOf(d.Repeat().Shuffle({.buffer_size = 2})).ok());
  EXPECT_TRUE(ErrorOf(d.Repeat().Take(9).Shuffle()).ok());
}

TEST(DatasetTest, CardinalityIsThatOfAPass) {
  const Dataset d = Numbers(7), none = d.Take(0);
  const auto keep = [](const std::vector<Tensor>&) -> StatusOr<bool> { return true; };
  const auto same = [d](const std::vector<Tensor>&) -> StatusOr<Dataset> { return d; };
  EXPECT_EQ(d.Cardinality(), 7);
  EXPECT_EQ(d.Repeat(3).Shuffle({.buffer_size = 2}).Prefetch(1).Cardinality(), 21);
  EXPECT_EQ(d.Repeat().Cardinality(), kInfiniteCardinality);
  EXPECT_EQ(d.Repeat().Take(5).Cardinality(), 5);
  EXPECT_EQ(none.Repeat().Cardinality(), 0);
  EXPECT_EQ(d.Batch(3).Cardinality(), 3);
  EXPECT_EQ(d.Batch(3, /*drop_remainder=*/true).Cardinality(), 2);
  EXPECT_EQ(d.Skip(9).Cardinality(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(d.Shard(3, i).Cardinality(), i == 0 ? 3 : 2);
  EXPECT_EQ(d.Concatenate(d.Take(2)).Cardinality(), 9);
  EXPECT_EQ(Dataset::Zip({d, d.Repeat(), d.Take(4)}).Cardinality(), 4);
  EXPECT_EQ(Dataset::Range(9, 0, -2).Cardinality(), 5);
  EXPECT_EQ(Dataset::FromElement({Tensor::Scalar<float>(1)}).Cardinality(), 1);
  EXPECT_EQ(Counting(4).Cardinality(), kUnknownCardinality);
  EXPECT_EQ(d.Filter(keep).Cardinality(), kUnknownCardinality);
  EXPECT_EQ(d.FlatMap(same).Cardinality(), kUnknownCardinality);
}

TEST(DatasetTest, GeneratorIsCalledUntilItEnds) {
  EXPECT_EQ(Walk(Counting(4)), Iota(4));
  EXPECT_EQ(Walk(Counting(4).Repeat(2)), std::vector<int64_t>({0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(DatasetTest, ErrorsOfAGeneratorComeThrough) {
  const Dataset broken = Dataset::FromGenerator(
      [](uint64_t) -> Generator { return [](std::vector<Tensor>*) -> StatusOr<bool> { return DataLoss("broken"); }; });
  for (const Dataset& d : {broken, broken.Batch(2), broken.Shuffle(), broken.Prefetch(1), broken.Repeat()}) {
    std::vector<Tensor> element;
    EXPECT_EQ(d.MakeIterator().value()->Next(&element).status(), absl::DataLossError("broken"));
  }
}

TEST(ShuffleTest, GivesEveryElementOnceInAnOrderFixedBySeedAndEpoch) {
  const Dataset d = Numbers(100);
  for (int64_t buffer : {0, 1, 7, 100, 1000}) {
    const std::vector<int64_t> order = Walk(d.Shuffle({.buffer_size = buffer, .seed = 3}));
    EXPECT_EQ(Sorted(order), Iota(100));
    EXPECT_EQ(Walk(d.Shuffle({.buffer_size = buffer, .seed = 3})), order);
    if (buffer == 1) continue;
    EXPECT_NE(order, Iota(100));
    EXPECT_NE(Walk(d.Shuffle({.buffer_size = buffer, .seed = 4})), order);
    EXPECT_NE(Walk(d.Shuffle({.buffer_size = buffer, .seed = 3}), 1000, /*epoch=*/1), order);
  }
}

TEST(ShuffleTest, EveryEpochHasAnotherOrder) {
  const Dataset d = Numbers(50).Shuffle({.seed = 1}).Repeat(3);
  const std::vector<int64_t> all = Walk(d);
  ASSERT_EQ(all.size(), 150u);
  std::set<std::vector<int64_t>> orders;
  for (int e = 0; e < 3; ++e) {
    std::vector<int64_t> epoch(all.begin() + 50 * e, all.begin() + 50 * (e + 1));
    EXPECT_EQ(Sorted(epoch), Iota(50));
    // Epoch e of a Repeat is what a walk of that epoch gives.
    EXPECT_EQ(Walk(Numbers(50).Shuffle({.seed = 1}), 1000, e), epoch);
    orders.insert(epoch);
  }
  EXPECT_EQ(orders.size(), 3u);
  EXPECT_EQ(Walk(d), all);
}

TEST(ShuffleTest, BufferBoundsHowFarAnElementComesForward) {
  const std::vector<int64_t> order = Walk(Numbers(200).Shuffle({.buffer_size = 10, .seed = 5}));
  for (int64_t i = 0; i < 200; ++i) EXPECT_LT(order[i], i + 10);
}

TEST(ShuffleTest, FirstPlaceIsDrawnEvenly) {
  std::vector<int> count(5);
  for (uint64_t seed = 0; seed < 5000; ++seed) ++count[Walk(Numbers(5).Shuffle({.seed = seed}), 1)[0]];
  // Five standard deviations of a binomial distribution with n = 5000, p = 1/5.
  for (int c : count) EXPECT_NEAR(c, 1000, 142);
}

TEST(BatchTest, LastBatchIsSmallerOrDropped) {
  for (const Dataset& d : {Numbers(7), Numbers(7).Shuffle({.seed = 1})}) {
    std::vector<Tensor> element;
    std::unique_ptr<DatasetIterator> it = d.Batch(3).MakeIterator().value();
    for (int64_t size : {3, 3, 1}) {
      ASSERT_TRUE(it->Next(&element).value());
      EXPECT_EQ(element[0].shape(), Shape({size}));
      EXPECT_EQ(element[1].shape(), Shape({size, 2}));
    }
    EXPECT_FALSE(it->Next(&element).value());
    EXPECT_EQ(Walk(d.Batch(3, /*drop_remainder=*/true)).size(), 6u);
    EXPECT_EQ(Sorted(Walk(d.Batch(3))), Iota(7));
  }
}

TEST(BatchTest, StacksElementsOfGenerators) {
  EXPECT_EQ(Walk(Counting(7).Batch(3)), Iota(7));
  EXPECT_EQ(Walk(Numbers(8).Batch(2).Batch(2)), Iota(8));
}

TEST(BatchTest, BatchesStringsToo) {
  const Dataset d = Dataset::FromTensors({Tensor::Of<std::string>({"a", "b", "c"})}).value();
  std::vector<Tensor> element;
  ASSERT_TRUE(d.Shuffle({.seed = 1}).Batch(3).MakeIterator().value()->Next(&element).value());
  std::set<std::string> got(element[0].flat<std::string>().begin(), element[0].flat<std::string>().end());
  EXPECT_EQ(got, std::set<std::string>({"a", "b", "c"}));
}

TEST(BatchTest, ElementsOfDifferentShapesAreAnError) {
  const Dataset ragged = Counting(4).Map([](std::vector<Tensor>* element) {
    const int64_t n = (*element)[0].scalar<int64_t>();
    (*element)[0] = Tensor(DType::kFloat, Shape({n}));
    return absl::OkStatus();
  });
  std::vector<Tensor> element;
  const Status status = ragged.Batch(2).MakeIterator().value()->Next(&element).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("float[0] and float[1]"), absl::string_view::npos) << status;
}

TEST(BatchTest, ABatchThatIsKeptIsNotOverwritten) {
  std::unique_ptr<DatasetIterator> it = Numbers(100).Shuffle({.seed = 1}).Batch(1).MakeIterator().value();
  std::vector<std::vector<Tensor>> kept;
  std::vector<int64_t> order;
  std::vector<Tensor> element;
  while (it->Next(&element).value()) {
    kept.push_back(element);
    order.push_back(element[0].data<int64_t>()[0]);
  }
  EXPECT_EQ(Sorted(order), Iota(100));
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i][0].data<int64_t>()[0], order[i]);
}

TEST(BatchTest, MemoryOfABatchThatWasLetGoIsUsedAgain) {
  std::unique_ptr<DatasetIterator> it = Numbers(1000).Shuffle({.seed = 1}).Batch(10).MakeIterator().value();
  std::set<const void*> seen;
  std::vector<Tensor> element;
  while (it->Next(&element).value()) seen.insert(element[1].raw_data());
  EXPECT_LE(seen.size(), 2u);
}

TEST(RepeatTest, RepeatsAsOftenAsAsked) {
  EXPECT_TRUE(Walk(Numbers(3).Repeat(0)).empty());
  EXPECT_EQ(Walk(Numbers(3).Repeat(2)).size(), 6u);
  EXPECT_EQ(Walk(Numbers(3).Repeat(), 1000).size(), 1000u);
  EXPECT_EQ(Walk(Numbers(3).Repeat().Batch(2), 3), std::vector<int64_t>({0, 1, 2, 0, 1, 2}));
}

TEST(RepeatTest, ForEverOverNothingEnds) { EXPECT_TRUE(Walk(Numbers(0).Repeat()).empty()); }

TEST(ShardTest, ShardsCoverEverythingOnce) {
  for (const Dataset& d : {Numbers(23), Numbers(23).Shuffle({.seed = 9}), Counting(23)}) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 4; ++i) {
      const std::vector<int64_t> part = Walk(d.Shard(4, i));
      EXPECT_EQ(part.size(), i < 3 ? 6u : 5u);
      all.insert(all.end(), part.begin(), part.end());
    }
    EXPECT_EQ(Sorted(all), Iota(23));
  }
  EXPECT_EQ(Walk(Numbers(10).Shard(3, 1)), std::vector<int64_t>({1, 4, 7}));
}

TEST(TakeSkipTest, CutTheBeginningAndTheEnd) {
  EXPECT_EQ(Walk(Numbers(5).Take(2)), std::vector<int64_t>({0, 1}));
  EXPECT_EQ(Walk(Numbers(5).Skip(2)), std::vector<int64_t>({2, 3, 4}));
  EXPECT_EQ(Walk(Numbers(5).Take(50)), Iota(5));
  EXPECT_TRUE(Walk(Numbers(5).Skip(50)).empty());
  EXPECT_TRUE(Walk(Numbers(5).Take(0)).empty());
  std::atomic<int64_t> made{0};
  EXPECT_EQ(Walk(Counting(10, &made).Take(3)).size(), 3u);
  EXPECT_EQ(made, 3);
}

TEST(MapTest, ChangesElementsAndPassesErrors) {
  const Dataset doubled = Numbers(4).Map([](std::vector<Tensor>* element) -> Status {
    const int64_t v = (*element)[0].scalar<int64_t>();
    if (v == 3) return InvalidArgument("three");
    *element = {Tensor::Scalar<int64_t>(2 * v)};
    return absl::OkStatus();
  });
  EXPECT_EQ(Walk(doubled.Take(3)), std::vector<int64_t>({0, 2, 4}));
  std::unique_ptr<DatasetIterator> it = doubled.Skip(3).MakeIterator().value();
  std::vector<Tensor> element;
  EXPECT_EQ(it->Next(&element).status(), absl::InvalidArgumentError("three"));
}

TEST(PrefetchTest, GivesTheSameElements) {
  EXPECT_EQ(Walk(Numbers(500).Batch(7).Prefetch(3)), Iota(500));
  EXPECT_EQ(Walk(Numbers(500).Prefetch(1)), Iota(500));
  const Dataset shuffled = Numbers(60).Shuffle({.seed = 2}).Batch(7);
  EXPECT_EQ(Walk(shuffled.Repeat(2).Prefetch(2)), Walk(shuffled.Repeat(2)));
}

TEST(PrefetchTest, MakesNoMoreAheadThanAsked) {
  std::atomic<int64_t> made{0};
  Mutex mu;
  CondVar changed;
  int64_t finished = 0;
  const Dataset d = Counting(100, &made).Map([&](std::vector<Tensor>*) {
    MutexLock lock(&mu);
    ++finished;
    changed.SignalAll();
    return absl::OkStatus();
  });
  std::unique_ptr<DatasetIterator> it = d.Prefetch(4).MakeIterator().value();
  std::vector<Tensor> element;
  for (int64_t taken = 0; taken < 20; ++taken) {
    // The thread runs ahead until the queue is full, and there it stops.
    MutexLock lock(&mu);
    while (finished < taken + 4) changed.Wait(&mu);
    EXPECT_LE(made, taken + 4);
    mu.Unlock();
    ASSERT_TRUE(it->Next(&element).value());
    mu.Lock();
  }
}

TEST(PrefetchTest, EarlyDestructionStopsTheThread) {
  std::atomic<int64_t> made{0};
  for (int i = 0; i < 20; ++i) {
    std::unique_ptr<DatasetIterator> it = Counting(-1, &made).Prefetch(2).MakeIterator().value();
    std::vector<Tensor> element;
    for (int j = 0; j < i % 3; ++j) ASSERT_TRUE(it->Next(&element).value());
  }
  const int64_t after = made;
  EXPECT_LE(after, 20 * 4);
}

TEST(PrefetchTest, IteratorOutlivesItsDataset) {
  std::unique_ptr<DatasetIterator> it;
  { it = Numbers(50).Shuffle({.seed = 1}).Batch(5).Repeat(2).Prefetch(2).MakeIterator().value(); }
  std::vector<Tensor> element;
  int batches = 0;
  while (it->Next(&element).value()) ++batches;
  EXPECT_EQ(batches, 20);
}

TEST(ShuffleTest, OrderIsTensorFlowsForTheSameSeeds) {
  // What tf.data gives for range(10).shuffle(4, seed=7) in a graph of the default seed.
  const ShuffleOptions options{.buffer_size = 4, .seed = 87654321, .seed2 = 7};
  EXPECT_EQ(
      Walk(Dataset::Range(0, 10).Shuffle(options).Repeat(3)),
      std::vector<int64_t>({0, 4, 2, 3, 5, 6, 1, 8, 7, 9, 1, 3, 0, 4, 6, 5, 7, 8, 9, 2, 3, 2, 4, 6, 1, 8, 5, 7, 0, 9}));
  ShuffleOptions fixed = options;
  fixed.reshuffle_each_iteration = false;
  EXPECT_EQ(Walk(Dataset::Range(0, 10).Shuffle(fixed).Repeat(2)),
            std::vector<int64_t>({3, 4, 0, 5, 1, 8, 2, 7, 6, 9, 3, 4, 0, 5, 1, 8, 2, 7, 6, 9}));
}

TEST(RangeTest, CountsUpAndDownAndStopsBeforeItOverflows) {
  EXPECT_EQ(Walk(Dataset::Range(2, 9, 3)), std::vector<int64_t>({2, 5, 8}));
  EXPECT_EQ(Walk(Dataset::Range(3, 0, -2)), std::vector<int64_t>({3, 1}));
  EXPECT_EQ(Walk(Dataset::Range(INT64_MAX - 1, INT64_MAX, 5)).size(), 1u);
  EXPECT_EQ(ErrorOf(Dataset::Range(0, 1, 0)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(FilterTest, KeepsWhatTheFunctionSays) {
  const auto odd = [](const std::vector<Tensor>& e) -> StatusOr<bool> { return e[0].scalar<int64_t>() % 2 == 1; };
  EXPECT_EQ(Walk(Numbers(6).Filter(odd)), std::vector<int64_t>({1, 3, 5}));
  EXPECT_EQ(Walk(Numbers(6).Filter(odd).Batch(2)), std::vector<int64_t>({1, 3, 5}));
}

TEST(ZipTest, EndsWithTheShortest) {
  std::unique_ptr<DatasetIterator> it = Dataset::Zip({Numbers(5), Dataset::Range(10, 13)}).MakeIterator().value();
  std::vector<Tensor> element;
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(it->Next(&element).value());
    ASSERT_EQ(element.size(), 3u);
    EXPECT_EQ(element[0].scalar<int64_t>(), i);
    EXPECT_EQ(element[2].scalar<int64_t>(), 10 + i);
  }
  EXPECT_FALSE(it->Next(&element).value());
  EXPECT_EQ(ErrorOf(Dataset::Zip({Numbers(1), Numbers(1).Batch(0)})).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ConcatenateTest, RowsOfDifferentTensorsMix) {
  EXPECT_EQ(Walk(Dataset::Range(0, 2).Concatenate(Dataset::Range(7, 9)).Repeat(2)),
            std::vector<int64_t>({0, 1, 7, 8, 0, 1, 7, 8}));
  EXPECT_EQ(Walk(Numbers(2).Concatenate(Numbers(3)).Batch(4)), std::vector<int64_t>({0, 1, 0, 1, 2}));
}

TEST(InterleaveTest, TakesTurnsAsTensorFlowDoes) {
  const auto thrice = [](const std::vector<Tensor>& e) -> StatusOr<Dataset> {
    return Dataset::FromElement(e).Repeat(3);
  };
  const auto below = [](const std::vector<Tensor>& e) -> StatusOr<Dataset> {
    return Dataset::Range(0, e[0].scalar<int64_t>());
  };
  EXPECT_EQ(Walk(Dataset::Range(0, 4).Interleave(thrice, {.cycle_length = 2, .block_length = 2})),
            std::vector<int64_t>({0, 0, 1, 1, 0, 1, 2, 2, 3, 3, 2, 3}));
  EXPECT_EQ(Walk(Dataset::Range(0, 5).Interleave(below, {.cycle_length = 3})),
            std::vector<int64_t>({0, 0, 0, 1, 1, 0, 2, 1, 2, 3}));
  EXPECT_EQ(Walk(Dataset::Range(0, 5).FlatMap(below)), std::vector<int64_t>({0, 0, 1, 0, 1, 2, 0, 1, 2, 3}));
  EXPECT_EQ(Sorted(Walk(Dataset::Range(0, 3).Interleave(below, {.cycle_length = INT64_MAX}))),
            std::vector<int64_t>({0, 0, 1}));
}

TEST(PaddedBatchTest, ElementsStandInTheCornerOfACommonShape) {
  const Dataset ramps = Dataset::Range(1, 4).Map([](std::vector<Tensor>* e) {
    const int64_t n = (*e)[0].scalar<int64_t>();
    Tensor t(DType::kInt64, Shape({n, 2}));
    for (int64_t i = 0; i < 2 * n; ++i) t.data<int64_t>()[i] = i + 1;
    *e = {t};
    return absl::OkStatus();
  });
  std::vector<Tensor> element;
  PaddedBatchOptions options{
      .size = 2, .padded_shapes = {PartialShape({-1, 3})}, .padding_values = {Tensor::Scalar<int64_t>(-9)}};
  std::unique_ptr<DatasetIterator> it = ramps.PaddedBatch(options).MakeIterator().value();
  ASSERT_TRUE(it->Next(&element).value());
  EXPECT_EQ(element[0].DebugString(20), "int64[2,2,3] [[[1 2 -9] [-9 -9 -9]] [[1 2 -9] [3 4 -9]]]");
  ASSERT_TRUE(it->Next(&element).value());
  EXPECT_EQ(element[0].shape(), Shape({1, 3, 3}));
  EXPECT_FALSE(it->Next(&element).value());
  options.padded_shapes = {PartialShape({-1, 1})};
  EXPECT_EQ(ramps.PaddedBatch(options).MakeIterator().value()->Next(&element).status().code(),
            absl::StatusCode::kDataLoss);
  options.padded_shapes = {PartialShape({-1})};
  EXPECT_EQ(ramps.PaddedBatch(options).MakeIterator().value()->Next(&element).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CacheTest, TheInputIsReadOnce) {
  std::atomic<int64_t> made{0};
  EXPECT_EQ(Walk(Counting(3, &made).Cache().Repeat(3)).size(), 9u);
  EXPECT_EQ(made, 3);
}

TEST(ParallelMapTest, KeepsTheOrderAndPassesErrors) {
  const auto twice = [](std::vector<Tensor>* e) {
    (*e)[0] = Tensor::Scalar<int64_t>(2 * (*e)[0].scalar<int64_t>());
    return absl::OkStatus();
  };
  std::vector<int64_t> want(50);
  for (int64_t i = 0; i < 50; ++i) want[i] = 2 * i;
  EXPECT_EQ(Walk(Counting(50).ParallelMap(twice, 4)), want);
  EXPECT_EQ(Walk(Counting(50).ParallelMap(twice, 4), 3).size(), 3u);  // the rest is dropped
  const auto fail = [](std::vector<Tensor>*) -> Status { return DataLoss("broken"); };
  std::vector<Tensor> element;
  EXPECT_EQ(Counting(9).ParallelMap(fail, 3).MakeIterator().value()->Next(&element).status(),
            absl::DataLossError("broken"));
}

// The windows over 0 to n - 1, as text.
std::vector<std::string> Windows(int64_t n, WindowOptions options) {
  std::vector<std::string> all;
  const Dataset windows = Numbers(n).Window(options);
  std::unique_ptr<DatasetIterator> it = windows.MakeIterator().value();
  std::vector<Tensor> element;
  while (it->Next(&element).value()) {
    EXPECT_EQ(element[1].shape(), Shape({element[0].dim(0), 2}));
    all.push_back(element[0].DebugString());
  }
  EXPECT_EQ(windows.Cardinality(), static_cast<int64_t>(all.size()));
  return all;
}

TEST(WindowTest, MayOverlapSkipAndBeSmallerAtTheEnd) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Windows(5, {.size = 2}), Strings({"int64[2] [0 1]", "int64[2] [2 3]", "int64[1] [4]"}));
  EXPECT_EQ(Windows(5, {.size = 2, .drop_remainder = true}), Strings({"int64[2] [0 1]", "int64[2] [2 3]"}));
  EXPECT_EQ(Windows(4, {.size = 3, .shift = 1, .drop_remainder = true}),
            Strings({"int64[3] [0 1 2]", "int64[3] [1 2 3]"}));
  EXPECT_EQ(Windows(7, {.size = 2, .shift = 3, .stride = 2}),
            Strings({"int64[2] [0 2]", "int64[2] [3 5]", "int64[1] [6]"}));
  EXPECT_EQ(Windows(2, {.size = 3, .drop_remainder = true}), Strings());
  EXPECT_EQ(Windows(0, {.size = 3}), Strings());
}

TEST(WindowTest, SizesThatMakeNoSenseAreAnError) {
  for (const WindowOptions& options : {WindowOptions{.size = 0}, WindowOptions{.shift = -1}, WindowOptions{.stride = 0},
                                       WindowOptions{.size = int64_t{1} << 40, .stride = int64_t{1} << 40}}) {
    EXPECT_EQ(Numbers(3).Window(options).MakeIterator().status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(UnbatchTest, UndoesBatch) {
  EXPECT_EQ(Walk(Numbers(7).Batch(3).Unbatch()), Iota(7));
  std::vector<Tensor> element;
  EXPECT_EQ(Numbers(3).Unbatch().MakeIterator().value()->Next(&element).status().code(),
            absl::StatusCode::kInvalidArgument);
  const Dataset uneven = Dataset::FromElement({Tensor::Of<int64_t>({1, 2}), Tensor::Of<int64_t>({1})});
  EXPECT_EQ(uneven.Unbatch().MakeIterator().value()->Next(&element).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ReduceTest, CarriesAStateThroughAllElements) {
  const auto sum = [](std::vector<Tensor>* state, const std::vector<Tensor>& element) -> Status {
    (*state)[0] = Tensor::Scalar((*state)[0].scalar<int64_t>() + element[0].scalar<int64_t>());
    return absl::OkStatus();
  };
  EXPECT_EQ(Numbers(5).Reduce({Tensor::Scalar<int64_t>(100)}, sum).value()[0].scalar<int64_t>(), 110);
  EXPECT_EQ(Numbers(0).Reduce({Tensor::Scalar<int64_t>(7)}, sum).value()[0].scalar<int64_t>(), 7);
  const auto fail = [](std::vector<Tensor>*, const std::vector<Tensor>&) -> Status { return OutOfRange("enough"); };
  EXPECT_EQ(Numbers(5).Reduce({}, fail).status().message(), "enough");
  EXPECT_EQ(Numbers(5).Reduce({}, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReadyTest, OnlyWhatWaitsForAThreadIsNotReady) {
  EXPECT_TRUE(Numbers(3).Shuffle().Batch(2).MakeIterator().value()->Ready());
  EXPECT_FALSE(Numbers(3).Prefetch(1).Batch(2).MakeIterator().value()->Ready());
}

}  // namespace
}  // namespace millrace
