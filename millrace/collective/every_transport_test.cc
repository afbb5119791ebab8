// What must hold over every transport.
#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/collective/blocking.h"
#include "millrace/collective/collective_testing.h"
#include "millrace/net/every_transport_testing.h"

namespace millrace::collective {
namespace {

using ::testing::HasSubstr;

class CollectiveTransport : public ::testing::TestWithParam<net::Kind> {
 protected:
  TestRanks Make(int size, const TestRanks::Adjust& adjust = nullptr) {
    return TestRanks(
        size, [this](int) { return world_->NewTransport(); },
        [&](int rank, GroupOptions* options) {
          if (!GetParam().threads) time_.Use(options);  // the simulation has one thread
          options->chunk_bytes = 100000;
          if (adjust != nullptr) adjust(rank, options);
        });
  }
  void Wait(const Outcomes& outcomes) {
    const auto over = [&] { return outcomes.all_here(); };
    for (int i = 0; i < 20 && !GetParam().threads && !world_->WaitUntil(over); ++i) time_.PassSeconds(1);
    ASSERT_TRUE(world_->WaitUntil(over)) << "no end";
  }

  ManualTime time_;
  std::unique_ptr<net::World> world_ = GetParam().make();
};

TEST_P(CollectiveTransport, EveryOperationGivesTheRightResult) {
  for (const int size : {2, 3}) {
    TestRanks ranks = Make(size, [](int, GroupOptions* options) { ShareHosts(options, 2); });
    for (const int64_t count : {5, 30000, 600000}) {
      for (const AlgorithmKind algorithm :
           {AlgorithmKind::kTree, AlgorithmKind::kDoubling, AlgorithmKind::kHalvingDoubling, AlgorithmKind::kRing,
            AlgorithmKind::kDirect, AlgorithmKind::kHierarchy}) {
        std::vector<std::vector<float>> values;
        for (int rank = 0; rank < size; ++rank) values.push_back(ValuesOf<float>(rank, count));
        const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
          ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[rank])), Reduction::kSum, {.algorithm = algorithm},
                                std::move(done));
        });
        Wait(outcomes);
        for (int rank = 0; rank < size; ++rank) {
          ASSERT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
          for (int64_t i = 0; i < count; ++i) ASSERT_EQ(values[rank][i], Expected(Reduction::kSum, size, i));
        }
      }
    }
    std::vector<std::vector<float>> values(size, std::vector<float>(90000)), to = values;
    for (int rank = 0; rank < size; ++rank) std::fill(values[rank].begin(), values[rank].end(), rank + 1);
    Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
      ranks[rank].AllToAll(ElementsOf(absl::MakeSpan(values[rank])), ElementsOf(absl::MakeSpan(to[rank])), {},
                           std::move(done));
    });
    Wait(outcomes);
    EXPECT_EQ(to[0][90000 / size], 2);
    outcomes = OnAll(ranks, [&](int rank, auto done) {
      ranks[rank].AllGather(ElementsOf(absl::MakeSpan(values[rank])), {}, {}, std::move(done));
    });
    Wait(outcomes);
    EXPECT_EQ(values[0].back(), size);
    outcomes = OnAll(ranks, [&](int rank, auto done) {
      ranks[rank].Broadcast(ElementsOf(absl::MakeSpan(values[rank])), 1, {}, std::move(done));
    });
    Wait(outcomes);
    EXPECT_EQ(values[0], values[1]);
    outcomes = OnAll(ranks, [&](int rank, auto done) {
      std::vector<ShardValue> own = {{{2 * rank, 2 * rank + 1}, to[rank].data()},
                                     {{2 * rank + 1, 2 * rank + 2}, to[rank].data()}};
      ranks[rank].FixedOrderAllReduce(own, ElementsOf(absl::MakeSpan(values[rank])), Reduction::kSum,
                                      EvenOwners(2 * size, size), {}, std::move(done));
    });
    Wait(outcomes);
    EXPECT_EQ(values[0], values[1]);
    outcomes = OnAll(ranks, [&](int rank, auto done) { ranks[rank].Leave(std::move(done)); });
    Wait(outcomes);
    for (int rank = 0; rank < size; ++rank) EXPECT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
  }
}

TEST_P(CollectiveTransport, ThreadsThatWaitGetTheResult) {
  if (!GetParam().threads) GTEST_SKIP() << "the simulation has one thread";
  constexpr int kSize = 3;
  TestRanks ranks = Make(kSize);
  ThreadPool pool("ranks", kSize);
  Outcomes outcomes(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    pool.Schedule([&, rank, done = outcomes.Done(rank)]() mutable {
      Status status;
      for (int i = 0; i < 100 && status.ok(); ++i) {
        std::vector<float> values = ValuesOf<float>(rank, 10 + 1000 * (i % 10));
        status = AllReduce(ranks[rank], ElementsOf(absl::MakeSpan(values)), Reduction::kSum, {});
        if (status.ok() && values[9] != Expected(Reduction::kSum, kSize, 9)) status = Internal("a wrong sum");
      }
      if (status.ok()) status = Leave(ranks[rank]);
      done(status);
    });
  }
  Wait(outcomes);
  for (int rank = 0; rank < kSize; ++rank) EXPECT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
}

TEST_P(CollectiveTransport, ARankThatEndsIsNamedOnAllOthers) {
  constexpr int kSize = 3;
  for (int gone = 0; gone < kSize; ++gone) {
    // Outlives the transports: after an error they may still refer to it.
    std::vector<std::vector<float>> values(kSize, std::vector<float>(300000));
    TestRanks ranks = Make(kSize);
    Outcomes first = OnAll(ranks, [&](int rank, auto done) { ranks[rank].Barrier({}, std::move(done)); });
    Wait(first);
    Outcomes outcomes(kSize);
    outcomes.Done(gone)(absl::OkStatus());
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != gone)
        ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[rank])), Reduction::kSum, {}, outcomes.Done(rank));
    }
    ranks.Destroy(gone);
    Wait(outcomes);
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == gone) continue;
      EXPECT_TRUE(absl::IsUnavailable(outcomes.status(rank))) << outcomes.status(rank);
      EXPECT_THAT(std::string(outcomes.status(rank).message()), HasSubstr(absl::StrCat("rank ", gone, " (")));
    }
  }
}

TEST_P(CollectiveTransport, AMismatchReachesEveryRank) {
  constexpr int kSize = 4;
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < kSize; ++rank) values.emplace_back(rank == 2 ? 1001 : 1000);
  TestRanks ranks = Make(kSize);
  const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
    ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[rank])), Reduction::kSum,
                          {.key = "x", .algorithm = AlgorithmKind::kRing}, std::move(done));
  });
  Wait(outcomes);
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_TRUE(absl::IsInvalidArgument(outcomes.status(rank))) << outcomes.status(rank);
    EXPECT_THAT(std::string(outcomes.status(rank).message()), HasSubstr("rank 2 ("));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CollectiveTransport, ::testing::ValuesIn(net::AllKinds()), net::NameOfKind);

}  // namespace
}  // namespace millrace::collective
