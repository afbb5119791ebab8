#include "millrace/collective/group.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/collective/collective_testing.h"
#include "millrace/collective/wire.h"

namespace millrace::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr AlgorithmKind kAllReduceKinds[] = {
    AlgorithmKind::kAuto, AlgorithmKind::kDoubling, AlgorithmKind::kTree,     AlgorithmKind::kHalvingDoubling,
    AlgorithmKind::kRing, AlgorithmKind::kDirect,   AlgorithmKind::kHierarchy};

template <typename T>
void CheckAllReduce(TestRanks& ranks, int64_t count, Reduction reduction, AlgorithmKind algorithm) {
  std::vector<std::vector<T>> values;
  for (int rank = 0; rank < ranks.size(); ++rank) values.push_back(ValuesOf<T>(rank, count));
  const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
    ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[rank])), reduction, {.key = "x", .algorithm = algorithm},
                          std::move(done));
  });
  for (int rank = 0; rank < ranks.size(); ++rank) {
    ASSERT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
    for (int64_t i = 0; i < count; ++i) {
      const double expected = Expected(reduction, ranks.size(), i);
      ASSERT_EQ(static_cast<double>(values[rank][i]), static_cast<double>(static_cast<T>(expected)))
          << DTypeOf<T>() << " by " << ReductionName(reduction) << ", rank " << rank << " of " << ranks.size()
          << ", element " << i << " of " << count << ", " << AlgorithmName(algorithm);
    }
  }
}

TEST(AllReduce, EveryAlgorithmWorksOnEveryNumberOfRanksAndElements) {
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16}) {
    for (const int hosts : {1, 3}) {
      InlineRanks ranks(size, [&](int, GroupOptions* options) {
        options->chunk_bytes = 200;  // so that there are several
        options->small_bytes = 100;
        ShareHosts(options, hosts);
      });
      for (const int64_t count : {0, 1, 2, 7, 1000, 5003}) {
        for (const AlgorithmKind algorithm : kAllReduceKinds)
          CheckAllReduce<float>(ranks, count, Reduction::kSum, algorithm);
      }
    }
  }
}

TEST(AllReduce, EveryReductionWorksOnEveryType) {
  InlineRanks ranks(5, [](int, GroupOptions* options) { ShareHosts(options, 2); });
  for (int i = 0; i < kReductions; ++i) {
    const auto reduction = static_cast<Reduction>(i);
    for (const AlgorithmKind algorithm : kAllReduceKinds) {
      CheckAllReduce<float>(ranks, 37, reduction, algorithm);
      CheckAllReduce<double>(ranks, 37, reduction, algorithm);
      CheckAllReduce<half>(ranks, 37, reduction, algorithm);
      CheckAllReduce<bfloat16>(ranks, 37, reduction, algorithm);
      CheckAllReduce<int32_t>(ranks, 37, reduction, algorithm);
      CheckAllReduce<int64_t>(ranks, 37, reduction, algorithm);
      CheckAllReduce<uint8_t>(ranks, 37, reduction, algorithm);
    }
  }
}

TEST(AllReduce, LargeOnesWaitForTheReceiverAndAreRight) {
  for (const int size : {2, 3, 5}) {
    InlineRanks ranks(size, [](int, GroupOptions* options) {
      options->eager_bytes = 100;
      ShareHosts(options, 2);
    });
    for (const AlgorithmKind algorithm : kAllReduceKinds)
      CheckAllReduce<float>(ranks, 100000, Reduction::kSum, algorithm);
  }
}

TEST(AllReduce, AllRanksHaveTheSameBytesInTheDocumentedOrder) {
  constexpr int64_t kCount = 1000;
  constexpr int kSize = 4;
  for (const AlgorithmKind algorithm : kAllReduceKinds) {
    if (algorithm == AlgorithmKind::kAuto) continue;
    for (const size_t small : {0, 100000}) {
      InlineRanks ranks(kSize, [&](int, GroupOptions* options) {
        options->small_bytes = small;
        ShareHosts(options, 2);
      });
      std::vector<std::vector<float>> values, x;
      for (int rank = 0; rank < kSize; ++rank) values.push_back(UnevenValues(rank, kCount));
      x = values;
      OnAll(ranks, [&](int rank, auto done) {
        ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[rank])), Reduction::kSum, {.algorithm = algorithm},
                              std::move(done));
      });
      for (int64_t i = 0; i < kCount; ++i) {
        float sum = 0;
        if (algorithm == AlgorithmKind::kTree || algorithm == AlgorithmKind::kDoubling) {
          sum = (x[0][i] + x[1][i]) + (x[2][i] + x[3][i]);
        } else if (algorithm == AlgorithmKind::kHalvingDoubling) {
          sum = (x[0][i] + x[2][i]) + (x[1][i] + x[3][i]);
        } else if (algorithm == AlgorithmKind::kHierarchy) {
          sum = (x[0][i] + x[2][i]) + (x[1][i] + x[3][i]);
        } else if (algorithm == AlgorithmKind::kDirect && small > 0) {
          sum = ((x[0][i] + x[1][i]) + x[2][i]) + x[3][i];
        } else if (algorithm == AlgorithmKind::kDirect) {
          const int j = static_cast<int>(i / (kCount / kSize));
          sum = ((x[j][i] + x[(j + 1) % 4][i]) + x[(j + 2) % 4][i]) + x[(j + 3) % 4][i];
        } else {
          const int j = static_cast<int>(i / (kCount / kSize));
          sum = ((x[(j + 1) % 4][i] + x[(j + 2) % 4][i]) + x[(j + 3) % 4][i]) + x[j][i];
        }
        for (int rank = 0; rank < kSize; ++rank)
          ASSERT_EQ(values[rank][i], sum) << AlgorithmName(algorithm) << ", rank " << rank << ", element " << i;
      }
    }
  }
}

TEST(ReduceScatter, LeavesEachRankItsPart) {
  for (const int size : {1, 2, 3, 5, 8}) {
    InlineRanks ranks(size, [](int, GroupOptions* options) { options->chunk_bytes = 64; });
    for (const int64_t count : {0, 3, 1001}) {
      std::vector<std::vector<double>> values;
      for (int rank = 0; rank < size; ++rank) values.push_back(ValuesOf<double>(rank, count));
      const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
        ranks[rank].ReduceScatter(ElementsOf(absl::MakeSpan(values[rank])), Reduction::kMean, {}, std::move(done));
      });
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
        const auto [first, last] = ScatterPart(count, rank, size);
        for (int64_t i = first; i < last; ++i) ASSERT_EQ(values[rank][i], Expected(Reduction::kMean, size, i));
      }
    }
  }
}

TEST(AllGather, GathersPartsOfAnySize) {
  for (const int size : {1, 2, 3, 5}) {
    InlineRanks ranks(size, [](int, GroupOptions* options) { options->chunk_bytes = 100; });
    for (const bool even : {true, false}) {
      std::vector<int64_t> counts, bounds = {0};
      for (int rank = 0; rank < size; ++rank) {
        counts.push_back(even ? 10 : 100 * ((rank + 1) % size));  // one has none
        bounds.push_back(bounds.back() + counts.back());
      }
      std::vector<std::vector<int32_t>> values(size, std::vector<int32_t>(bounds.back(), -1));
      for (int rank = 0; rank < size; ++rank) {
        for (int64_t i = bounds[rank]; i < bounds[rank + 1]; ++i) values[rank][i] = 1000 * rank + static_cast<int>(i);
      }
      const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
        ranks[rank].AllGather(ElementsOf(absl::MakeSpan(values[rank])), even ? std::vector<int64_t>() : counts, {},
                              std::move(done));
      });
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
        for (int from = 0; from < size; ++from) {
          for (int64_t i = bounds[from]; i < bounds[from + 1]; ++i)
            ASSERT_EQ(values[rank][i], 1000 * from + static_cast<int>(i)) << rank;
        }
      }
    }
  }
}

TEST(Broadcast, GivesAllTheElementsOfTheRoot) {
  for (const int size : {1, 2, 3, 6, 8}) {
    InlineRanks ranks(size, [](int, GroupOptions* options) { options->chunk_bytes = 100; });
    for (int root = 0; root < size; ++root) {
      std::vector<std::vector<int64_t>> values(size, std::vector<int64_t>(500));
      for (int64_t i = 0; i < 500; ++i) values[root][i] = root + 10 * i;
      const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
        ranks[rank].Broadcast(ElementsOf(absl::MakeSpan(values[rank])), root, {}, std::move(done));
      });
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
        ASSERT_EQ(values[rank], values[root]) << rank;
        ASSERT_EQ(values[rank][499], root + 4990);
      }
    }
  }
}

TEST(AllToAll, ExchangesBlocks) {
  for (const int size : {1, 2, 3, 7}) {
    InlineRanks ranks(size);
    constexpr int kBlock = 5000;  // large enough to be lent
    std::vector<std::vector<int32_t>> from(size), to(size, std::vector<int32_t>(kBlock * size));
    for (int rank = 0; rank < size; ++rank) {
      for (int other = 0; other < size; ++other) from[rank].insert(from[rank].end(), kBlock, 100 * rank + other);
    }
    const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
      ranks[rank].AllToAll(ElementsOf(absl::MakeSpan(from[rank])), ElementsOf(absl::MakeSpan(to[rank])), {},
                           std::move(done));
    });
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
      for (int other = 0; other < size; ++other) {
        ASSERT_EQ(to[rank][kBlock * other], 100 * other + rank);
        ASSERT_EQ(to[rank][kBlock * other + kBlock - 1], 100 * other + rank);
      }
    }
  }
}

TEST(Barrier, EndsWhenTheLastRankHasStartedIt) {
  InlineRanks ranks(5);
  Outcomes outcomes(5);
  for (int rank = 0; rank < 4; ++rank) ranks[rank].Barrier({}, outcomes.Done(rank));
  for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(outcomes.here(rank)) << rank;
  ranks[4].Barrier({}, outcomes.Done(4));
  for (int rank = 0; rank < 5; ++rank) EXPECT_TRUE(outcomes.status(rank).ok()) << rank;
}

TEST(Group, ManyOperationsMayBeInFlight) {
  InlineRanks ranks(3, [](int, GroupOptions* options) { options->most_in_flight = 4; });
  constexpr int kOperations = 50;
  std::vector<Outcomes> outcomes(kOperations, Outcomes(3));
  std::vector<std::vector<std::vector<float>>> values(kOperations, std::vector<std::vector<float>>(3));
  // One rank after the other starts all of them: each is far ahead of the next.
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < kOperations; ++i) {
      outcomes[i] = rank == 0 ? Outcomes(3) : outcomes[i];
      values[i][rank] = ValuesOf<float>(rank, 100 + i);
      ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[i][rank])), Reduction::kSum,
                            {.key = absl::StrCat("op", i)}, outcomes[i].Done(rank));
    }
  }
  for (int i = 0; i < kOperations; ++i) {
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(outcomes[i].status(rank).ok()) << outcomes[i].status(rank);
      ASSERT_EQ(values[i][rank][7], Expected(Reduction::kSum, 3, 7));
    }
  }
}

// ---- Errors

using Start = std::function<void(CollectiveGroup& group, CollectiveGroup::Done done)>;

// Rank `odd` of five does something else than the others. All must get an error that names it and has both `values`.
void ExpectOddRankNamed(int odd, const Start& common, const Start& other, const std::string& value,
                        const std::string& odd_value, int hosts = 2) {
  ManualTime time;
  InlineRanks ranks(5, [&](int, GroupOptions* options) {
    time.Use(options);
    ShareHosts(options, hosts);
  });
  const Outcomes outcomes = OnAll(ranks, [&](int rank, CollectiveGroup::Done done) {
    (rank == odd ? other : common)(ranks[rank], std::move(done));
  });
  // Ranks that wait for each other without a message between them find out when they ask.
  time.PassSeconds(3);
  for (int rank = 0; rank < 5; ++rank) {
    const Status status = outcomes.status(rank);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("rank ", odd, " (/task:", odd)), HasSubstr(value), HasSubstr(odd_value)))
        << "on rank " << rank;
  }
}

Start Reducing(int64_t count, Reduction reduction, AlgorithmKind algorithm, std::string key = "x") {
  return [=](CollectiveGroup& group, CollectiveGroup::Done done) {
    // Kept for good: after an error, messages may still refer to it.
    auto* const values = new std::vector<float>(count, 1);
    static auto* const kept = new std::vector<std::unique_ptr<std::vector<float>>>;
    kept->emplace_back(values);
    group.AllReduce(ElementsOf(absl::MakeSpan(*values)), reduction, {.key = key, .algorithm = algorithm},
                    std::move(done));
  };
}

TEST(Mismatch, ADifferentCountIsNamedOnEveryRank) {
  for (const AlgorithmKind algorithm : kAllReduceKinds) {
    for (int odd = 0; odd < 5; ++odd) {
      ExpectOddRankNamed(odd, Reducing(100, Reduction::kSum, algorithm), Reducing(101, Reduction::kSum, algorithm),
                         "100 float", "101 float");
    }
  }
}

TEST(Mismatch, ACountThatLeadsToAnotherAlgorithmIsNamedOnEveryRank) {
  for (int odd = 0; odd < 5; ++odd) {
    ExpectOddRankNamed(odd, Reducing(100, Reduction::kSum, AlgorithmKind::kAuto),
                       Reducing(1000000, Reduction::kSum, AlgorithmKind::kAuto), "100 float, doubling",
                       "1000000 float, ring", /*hosts=*/5);
    ExpectOddRankNamed(odd, Reducing(1000000, Reduction::kSum, AlgorithmKind::kAuto),
                       Reducing(100, Reduction::kSum, AlgorithmKind::kAuto), "1000000 float, ring",
                       "100 float, doubling", /*hosts=*/5);
  }
}

TEST(Mismatch, RanksThatDisagreeAboutWhoSharesAHostAreNamed) {
  constexpr int kSize = 4;
  std::vector<std::vector<float>> values(kSize, std::vector<float>(10));
  ManualTime time;
  InlineRanks ranks(kSize, [&](int rank, GroupOptions* options) {
    time.Use(options);
    ShareHosts(options, 2);
    if (rank == 3) options->ranks[3].host = "host0";
  });
  const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) {
    ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[rank])), Reduction::kSum, {}, std::move(done));
  });
  time.PassSeconds(3);
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_TRUE(absl::IsInvalidArgument(outcomes.status(rank))) << outcomes.status(rank);
    EXPECT_THAT(std::string(outcomes.status(rank).message()), AllOf(HasSubstr("rank 3 ("), HasSubstr("hosts of hash")));
  }
}

TEST(Mismatch, ADifferentReductionTypeOrderOrOperationIsNamedOnEveryRank) {
  const Start common = Reducing(100, Reduction::kSum, AlgorithmKind::kAuto);
  const Start integers = [](CollectiveGroup& group, CollectiveGroup::Done done) {
    static auto* const values = new std::vector<int32_t>(100);
    group.AllReduce(ElementsOf(absl::MakeSpan(*values)), Reduction::kSum, {.key = "x"}, std::move(done));
  };
  const Start barrier = [](CollectiveGroup& group, CollectiveGroup::Done done) {
    group.Barrier({.key = "end"}, std::move(done));
  };
  const Start broadcast = [](CollectiveGroup& group, CollectiveGroup::Done done) {
    static auto* const values = new std::vector<float>(100);
    group.Broadcast(ElementsOf(absl::MakeSpan(*values)), 0, {.key = "x"}, std::move(done));
  };
  for (int odd = 0; odd < 5; ++odd) {
    ExpectOddRankNamed(odd, common, Reducing(100, Reduction::kMax, AlgorithmKind::kAuto), "sum of", "max of");
    ExpectOddRankNamed(odd, common, integers, "100 float", "100 int32");
    ExpectOddRankNamed(odd, common, Reducing(100, Reduction::kSum, AlgorithmKind::kAuto, "y"), "'x'", "'y'");
    ExpectOddRankNamed(odd, common, barrier, "all-reduce 'x'", "barrier 'end'");
    ExpectOddRankNamed(odd, common, broadcast, "all-reduce 'x'", "broadcast 'x'");
  }
}

TEST(Group, ARankThatLeavesEarlyFailsTheOthers) {
  for (int gone = 0; gone < 4; ++gone) {
    InlineRanks ranks(4);
    const Outcomes first = OnAll(ranks, [&](int rank, auto done) { ranks[rank].Barrier({}, std::move(done)); });
    ASSERT_TRUE(first.status(0).ok());
    ranks.LeaveGroup(gone);
    Outcomes outcomes(4);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != gone) ranks[rank].Barrier({.key = "second"}, outcomes.Done(rank));
    }
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == gone) continue;
      EXPECT_TRUE(absl::IsUnavailable(outcomes.status(rank))) << outcomes.status(rank);
      EXPECT_THAT(std::string(outcomes.status(rank).message()), HasSubstr(absl::StrCat("rank ", gone, " (")));
    }
  }
}

TEST(Group, AnAbortEndsTheOperationsOfAllRanksAndAllLaterOnes) {
  InlineRanks ranks(3);
  const Outcomes first = OnAll(ranks, [&](int rank, auto done) { ranks[rank].Barrier({}, std::move(done)); });
  Outcomes outcomes(3), later(3);
  ranks[0].Barrier({}, outcomes.Done(0));
  ranks[1].Barrier({}, outcomes.Done(1));
  ranks[2].Abort(Aborted("the user pressed a key"));
  for (int rank = 0; rank < 3; ++rank) ranks[rank].Barrier({}, later.Done(rank));
  for (int rank = 0; rank < 3; ++rank) {
    const Status status = rank < 2 ? outcomes.status(rank) : later.status(rank);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 2 ("), HasSubstr("the user pressed a key")));
    EXPECT_EQ(later.status(rank), status);
  }
}

TEST(Group, LeaveEndsOnAllRanks) {
  for (const int size : {1, 2, 5}) {
    InlineRanks ranks(size);
    OnAll(ranks, [&](int rank, auto done) { ranks[rank].Barrier({}, std::move(done)); });
    const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) { ranks[rank].Leave(std::move(done)); });
    for (int rank = 0; rank < size; ++rank) EXPECT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
  }
}

TEST(Group, InvalidArgumentsAreRefusedWithoutTroublingTheOthers) {
  InlineRanks ranks(2);
  std::vector<float> values(10);
  char bytes[16];
  const auto refused = [&](const std::function<void(CollectiveGroup::Done)>& start) {
    Outcomes outcome(1);
    start(outcome.Done(0));
    EXPECT_TRUE(absl::IsInvalidArgument(outcome.status(0))) << outcome.status(0);
  };
  const Elements good = ElementsOf(absl::MakeSpan(values));
  refused([&](auto done) { ranks[0].AllReduce({bytes + 1, 2, DType::kFloat}, Reduction::kSum, {}, std::move(done)); });
  refused([&](auto done) { ranks[0].AllReduce({nullptr, 2, DType::kFloat}, Reduction::kSum, {}, std::move(done)); });
  refused([&](auto done) { ranks[0].AllReduce({bytes, -1, DType::kInt8}, Reduction::kSum, {}, std::move(done)); });
  refused([&](auto done) { ranks[0].AllReduce({bytes, 2, DType::kBool}, Reduction::kSum, {}, std::move(done)); });
  refused([&](auto done) { ranks[0].Broadcast({bytes, 0, DType::kString}, 0, {}, std::move(done)); });
  refused([&](auto done) { ranks[0].Broadcast(good, 2, {}, std::move(done)); });
  refused([&](auto done) { ranks[0].AllGather(good, {1, 2}, {}, std::move(done)); });
  refused([&](auto done) {
    ranks[0].AllToAll({bytes, 3, DType::kInt8}, {bytes, 3, DType::kInt8}, {}, std::move(done));
  });
  refused([&](auto done) {
    ranks[0].AllReduce(good, Reduction::kSum, {.algorithm = AlgorithmKind::kFixedOrder}, std::move(done));
  });
  refused([&](auto done) {
    ranks[0].FixedOrderAllReduce({{{0, 1}, values.data()}}, good, Reduction::kSum, {0, 0}, {}, std::move(done));
  });
  refused([&](auto done) {
    ranks[0].FixedOrderAllReduce({{{0, 1}, values.data()}}, good, Reduction::kSum, {0, 7}, {}, std::move(done));
  });
  const Outcomes after = OnAll(ranks, [&](int rank, auto done) { ranks[rank].Barrier({}, std::move(done)); });
  EXPECT_TRUE(after.status(0).ok()) << after.status(0);
}

// One rank, whose task starts when the object is made.
struct LateRank {
  LateRank(const std::shared_ptr<net::InprocNetwork>& network, GroupOptions options)
      : transport(net::NewInprocTransport({.network = network})),
        listener(transport->Listen(options.ranks[options.rank].address, &service).value()) {
    options.transport = transport.get();
    group = CollectiveGroup::Make(&service, std::move(options)).value();
  }
  std::unique_ptr<net::Transport> transport;
  CollectiveService service;
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<CollectiveGroup> group;
};

TEST(Group, NamesThoseThatDoNotJoinUntilTheyHave) {
  ManualTime time;
  const auto network = net::NewInprocNetwork();
  GroupOptions options{.key = "test"};
  for (int rank = 0; rank < 3; ++rank)
    options.ranks.push_back({absl::StrCat("host", rank, ":1"), absl::StrCat("/task:", rank)});
  time.Use(&options);
  std::vector<std::string> lines;
  GroupOptions first = options;
  first.announce = [&](const std::string& line) { lines.push_back(line); };
  LateRank here(network, first);
  Outcomes outcomes(3);
  here.group->Barrier({}, outcomes.Done(0));
  time.PassSeconds(1);
  EXPECT_TRUE(lines.empty());
  time.PassSeconds(2);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("for 2 of 3 ranks to join: rank 1 (/task:1 at host1:1), rank 2 (/task:2 at "),
                              HasSubstr("of at most 1m")));

  options.rank = 2;
  LateRank second(network, options);
  second.group->Barrier({}, outcomes.Done(2));
  time.PassSeconds(7);
  EXPECT_EQ(lines.size(), 1u);
  time.PassSeconds(5);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], HasSubstr("for 1 of 3 ranks to join: rank 1 (/task:1 at host1:1)"));

  options.rank = 1;
  LateRank third(network, options);
  third.group->Barrier({}, outcomes.Done(1));
  time.PassSeconds(1);
  EXPECT_TRUE(outcomes.all_here());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[2], HasSubstr("all 3 ranks of collective group 'test' have joined"));

  // Later ones may take their time without a line.
  here.group->Barrier({}, [](const Status&) {});
  time.PassSeconds(30);
  EXPECT_EQ(lines.size(), 3u);
}

TEST(Group, AGroupOfAnotherSizeIsNamed) {
  ManualTime time;
  InlineRanks ranks(3, [&](int rank, GroupOptions* options) {
    time.Use(options);
    if (rank == 1) options->ranks.push_back({"localhost:1", "/task:3"});
  });
  const Outcomes outcomes = OnAll(ranks, [&](int rank, auto done) { ranks[rank].Barrier({}, std::move(done)); });
  time.PassSeconds(3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(absl::IsInvalidArgument(outcomes.status(rank))) << rank << ": " << outcomes.status(rank);
    EXPECT_THAT(std::string(outcomes.status(rank).message()), HasSubstr("rank 1"));
  }
}

TEST(Service, CallsOfStrangersAreRefused) {
  InlineRanks ranks(2);
  const auto call = [&](const std::string& method, const std::string& request) {
    Status status = absl::UnknownError("no answer");
    ranks.transport(0)
        .Connect(ranks.address(0))
        ->Call("/millrace.Collective/" + method, net::Bytes::Of(request), {},
               [&](StatusOr<net::Bytes> answer) { status = answer.status(); });
    return status;
  };
  for (const char* const method : {"Hello", "Stream", "Send", "Ping", "Abort"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(call(method, "\xff\xff\xff"))) << call(method, "\xff\xff\xff");
    EXPECT_TRUE(absl::IsNotFound(call(method, EncodeSender({.group = "other", .rank = 0, .size = 2}))));
  }
}

}  // namespace
}  // namespace millrace::collective
