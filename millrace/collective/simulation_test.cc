// Groups on the simulated network: any delay, any order, any fault.
#include <cstring>
#include <random>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/sim/sim_training_testing.h"
#include "millrace/collective/collective_testing.h"
#include "millrace/net/sim/sim_network.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace::collective {
namespace {

using net::SimFate;
using net::SimMessage;
using net::SimNetwork;
using net::SimOptions;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string HostOf(int rank) { return absl::StrCat("host", rank); }
std::string NameOf(int rank) { return absl::StrCat("rank ", rank, " ("); }

// Ranks on hosts of a simulated network. Their elements outlive the network.
class Simulated {
 public:
  Simulated(int size, uint64_t seed, SimOptions sim = {}, bool streams = true,
            const TestRanks::Adjust& adjust = nullptr)
      : network_(seed, sim),
        ranks_((network_.SetStreams(streams), size), [&](int rank) { return network_.NewTransport(HostOf(rank)); },
               [&](int rank, GroupOptions* options) {
                 options->clock = network_.clock(HostOf(rank));
                 options->timers = network_.timers(HostOf(rank));
                 options->chunk_bytes = 4000;
                 ShareHosts(options, size <= 4 ? 2 : 3);
                 if (adjust != nullptr) adjust(rank, options);
               }) {}

  SimNetwork& network() { return network_; }
  TestRanks& ranks() { return ranks_; }
  std::string log() const { return absl::StrJoin(network_.log(), "\n"); }

  // Starts an all-reduce of floats on all ranks.
  Outcomes AllReduce(int64_t count, AlgorithmKind algorithm, absl::Duration timeout = absl::InfiniteDuration()) {
    kept_.push_back(std::move(values_));  // after an error, messages may still refer to it
    values_.assign(ranks_.size(), {});
    return OnAll(ranks_, [&](int rank, auto done) { Start(rank, count, algorithm, timeout, std::move(done)); });
  }
  void Start(int rank, int64_t count, AlgorithmKind algorithm, absl::Duration timeout, CollectiveGroup::Done done) {
    values_.resize(ranks_.size());
    values_[rank] = ValuesOf<float>(rank, count);
    ranks_[rank].AllReduce(ElementsOf(absl::MakeSpan(values_[rank])), Reduction::kSum,
                           {.key = "x", .algorithm = algorithm, .timeout = timeout}, std::move(done));
  }
  bool Right(int rank) const {
    for (size_t i = 0; i < values_[rank].size(); ++i) {
      if (values_[rank][i] != Expected(Reduction::kSum, static_cast<int>(values_.size()), static_cast<int64_t>(i)))
        return false;
    }
    return true;
  }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<std::vector<float>>> kept_;
  SimNetwork network_;
  TestRanks ranks_;
};

constexpr AlgorithmKind kKinds[] = {AlgorithmKind::kTree, AlgorithmKind::kDoubling, AlgorithmKind::kHalvingDoubling,
                                    AlgorithmKind::kRing, AlgorithmKind::kDirect,   AlgorithmKind::kHierarchy};

TEST(CollectiveSimulation, EveryOperationIsRightWhateverTheNetworkDelays) {
  ForSeeds(200, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const int size = 2 + static_cast<int>(random() % 15);
    const bool streams = random() % 2 == 0;
    Simulated sim(size, seed, {.delayed = 0.1, .duplicated = 0.1}, streams,
                  [](int, GroupOptions* options) { options->eager_bytes = 10000; });
    for (int i = 0; i < 4; ++i) {
      const auto count = static_cast<int64_t>(random() % 8000);
      const Outcomes outcomes = sim.AllReduce(count, kKinds[random() % std::size(kKinds)]);
      ASSERT_TRUE(sim.network().RunUntil([&] { return outcomes.all_here(); })) << sim.log();
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank) << "\n" << sim.log();
        ASSERT_TRUE(sim.Right(rank)) << rank << " of " << size << "\n" << sim.log();
      }
    }
    const Outcomes left = OnAll(sim.ranks(), [&](int rank, auto done) { sim.ranks()[rank].Leave(std::move(done)); });
    ASSERT_TRUE(sim.network().RunUntil([&] { return left.all_here(); })) << sim.log();
    for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(left.status(rank).ok()) << left.status(rank);
  });
}

TEST(CollectiveSimulation, FixedOrderGivesTheSameBytesOnAnyNumberOfRanks) {
  constexpr int kShards = 8;
  constexpr int64_t kCount = 30000;
  std::vector<std::vector<float>> shards;
  for (int shard = 0; shard < kShards; ++shard) shards.push_back(UnevenValues(shard, kCount));
  ForSeeds(3, [&](uint64_t seed) {
    std::vector<float> first;
    for (const int size : {1, 2, 3, 4, 5, 8}) {
      std::vector<std::vector<float>> results(size, std::vector<float>(kCount));
      Simulated sim(size, seed + static_cast<uint64_t>(size), {.delayed = 0.1, .duplicated = 0.1}, seed % 2 == 0);
      const std::vector<int> owners = EvenOwners(kShards, size);
      const Outcomes outcomes = OnAll(sim.ranks(), [&](int rank, auto done) {
        std::vector<ShardValue> own;
        for (int shard = 0; shard < kShards; ++shard) {
          if (owners[shard] == rank) own.push_back({{shard, shard + 1}, shards[shard].data()});
        }
        sim.ranks()[rank].FixedOrderAllReduce(own, ElementsOf(absl::MakeSpan(results[rank])), Reduction::kMean, owners,
                                              {}, std::move(done));
      });
      ASSERT_TRUE(sim.network().RunUntil([&] { return outcomes.all_here(); })) << sim.log();
      if (first.empty()) first = results[0];
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
        ASSERT_EQ(std::memcmp(first.data(), results[rank].data(), kCount * sizeof(float)), 0)
            << "rank " << rank << " of " << size;
      }
    }
  });
}

// ---- A fault at every message of an all-reduce

enum class Fault { kLose, kKillSender, kKillReceiver, kHangReceiver, kCut };

struct FaultRun {
  int size;
  AlgorithmKind algorithm;
  bool streams;
  Fault fault;
};

// Runs an all-reduce with the fault at message `at`, and returns the number of messages; a negative one is no fault.
int RunWithFault(const FaultRun& run, uint64_t seed, int at) {
  // The ranks send messages until the simulation ends.
  int messages = 0;
  std::vector<int> blamed;  // an error names one of these
  int dead = -1;
  absl::Time when;
  Simulated sim(run.size, seed, {}, run.streams, [&](int, GroupOptions* options) {
    options->eager_bytes = 3000;                    // so that the all-reduce below is a large one
    if (run.size > 2) options->small_bytes = 1000;  // two ranks exchange all of it
    options->join_timeout = absl::Seconds(20);
  });
  sim.network().OnMessage([&](const SimMessage& message) {
    if (messages++ != at) return SimFate::kDeliver;
    when = sim.network().clock()->Now();
    const int from = message.from.back() - '0', to = message.to.back() - '0';
    blamed = {from, to};
    switch (run.fault) {
      case Fault::kLose:
        return SimFate::kLose;
      case Fault::kCut:
        sim.network().Cut(message.from, message.to);
        return SimFate::kDeliver;
      case Fault::kKillSender:
      case Fault::kKillReceiver:
        dead = run.fault == Fault::kKillSender ? from : to;
        sim.network().Kill(HostOf(dead));
        break;
      case Fault::kHangReceiver:
        dead = to;
        sim.network().Hang(HostOf(dead));
        break;
    }
    blamed = {dead};
    return SimFate::kDeliver;
  });
  const Outcomes outcomes = sim.AllReduce(1000, run.algorithm);
  const auto over = [&] {
    for (int rank = 0; rank < run.size; ++rank) {
      if (rank != dead && !outcomes.here(rank)) return false;
    }
    return true;
  };
  EXPECT_TRUE(sim.network().RunUntil(over, absl::Minutes(2))) << "a rank hangs\n" << sim.log();
  for (int rank = 0; rank < run.size; ++rank) {
    if (rank == dead || !outcomes.here(rank)) continue;
    const Status status = outcomes.status(rank);
    if (status.ok()) {
      EXPECT_TRUE(sim.Right(rank)) << "rank " << rank << "\n" << sim.log();
      continue;
    }
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    bool named = false;
    for (const int rank_named : blamed) named |= absl::StrContains(status.message(), NameOf(rank_named));
    EXPECT_TRUE(named) << "on rank " << rank << ": " << status << "\n" << sim.log();
  }
  return messages;
}

void ForEveryMessage(Fault fault) {
  for (const bool streams : {true, false}) {
    for (const AlgorithmKind algorithm : kKinds) {
      for (const int size : {2, 3, 4}) {
        const FaultRun run{size, algorithm, streams, fault};
        const int messages = RunWithFault(run, 1, -1);
        ASSERT_GT(messages, 2);
        for (int at = 0; at < messages && !::testing::Test::HasFailure(); ++at) RunWithFault(run, 1, at);
        ASSERT_FALSE(::testing::Test::HasFailure())
            << size << " ranks, " << AlgorithmName(algorithm) << (streams ? ", streams" : ", calls");
      }
    }
  }
}

TEST(CollectiveFault, AnyLostMessageEndsInAnErrorOrInTheResult) { ForEveryMessage(Fault::kLose); }
TEST(CollectiveFault, AnyCutEndsInAnErrorOrInTheResult) { ForEveryMessage(Fault::kCut); }
TEST(CollectiveFault, ASenderMayDieAtAnyMessage) { ForEveryMessage(Fault::kKillSender); }
TEST(CollectiveFault, AReceiverMayDieAtAnyMessage) { ForEveryMessage(Fault::kKillReceiver); }
TEST(CollectiveFault, AReceiverMayHangAtAnyMessage) { ForEveryMessage(Fault::kHangReceiver); }

TEST(CollectiveFault, FaultsAtRandomEndInAnErrorThatNamesARankOrInTheResult) {
  ForSeeds(200, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const int size = 2 + static_cast<int>(random() % 15);
    const AlgorithmKind algorithm = kKinds[random() % std::size(kKinds)];
    Simulated sim(size, seed, {.delayed = 0.05, .lost = 0.01, .duplicated = 0.05}, random() % 2 == 0,
                  [](int, GroupOptions* options) { options->join_timeout = absl::Seconds(30); });
    const int victim = static_cast<int>(random() % size);
    const bool kill = random() % 2 == 0;
    sim.network().timers()->Schedule(absl::Microseconds(static_cast<int64_t>(random() % 20000)), [&] {
      if (kill) sim.network().Kill(HostOf(victim));
    });
    for (int i = 0; i < 3; ++i) {
      const Outcomes outcomes = sim.AllReduce(static_cast<int64_t>(random() % 3000), algorithm);
      const auto over = [&] {
        for (int rank = 0; rank < size; ++rank) {
          if (!(kill && rank == victim) && !outcomes.here(rank)) return false;
        }
        return true;
      };
      ASSERT_TRUE(sim.network().RunUntil(over, absl::Minutes(5))) << "a rank hangs\n" << sim.log();
      for (int rank = 0; rank < size; ++rank) {
        if (kill && rank == victim) continue;
        const Status status = outcomes.status(rank);
        if (status.ok()) {
          ASSERT_TRUE(sim.Right(rank)) << sim.log();
        } else {
          ASSERT_THAT(std::string(status.message()), HasSubstr("rank ")) << sim.log();
        }
      }
    }
  });
}

TEST(CollectiveFault, ASilentRankIsNamedWithinSevenSecondsAndADeadOneAtOnce) {
  for (const bool hang : {true, false}) {
    constexpr int kSize = 5, kGone = 3;
    Simulated sim(kSize, 1);
    const Outcomes first = sim.AllReduce(10, AlgorithmKind::kRing);
    ASSERT_TRUE(sim.network().RunUntil([&] { return first.all_here(); }));
    Outcomes outcomes(kSize);
    outcomes.Done(kGone)(absl::OkStatus());
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank != kGone) sim.Start(rank, 10, AlgorithmKind::kRing, absl::InfiniteDuration(), outcomes.Done(rank));
    }
    const absl::Time begun = sim.network().clock()->Now();
    hang ? sim.network().Hang(HostOf(kGone)) : sim.network().Kill(HostOf(kGone));
    ASSERT_TRUE(sim.network().RunUntil([&] { return outcomes.all_here(); })) << sim.log();
    // On the virtual clock.
    EXPECT_LE(sim.network().clock()->Now() - begun, hang ? absl::Seconds(7) : absl::Milliseconds(10)) << sim.log();
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == kGone) continue;
      EXPECT_TRUE(absl::IsUnavailable(outcomes.status(rank))) << outcomes.status(rank);
      EXPECT_THAT(std::string(outcomes.status(rank).message()), HasSubstr(NameOf(kGone)));
    }
  }
}

TEST(CollectiveFault, ARankThatDoesNotStartAnOperationIsNamedAtTheDeadline) {
  for (const AlgorithmKind algorithm : kKinds) {
    for (const absl::Duration timeout : {absl::Milliseconds(100), absl::Seconds(30)}) {
      constexpr int kSize = 6, kMissing = 2;
      WaitRegistry waits;
      Simulated sim(kSize, 1, {}, true, [&](int rank, GroupOptions* options) {
        if (rank == 5) options->waits = &waits;
      });
      const Outcomes first = sim.AllReduce(10, algorithm);
      ASSERT_TRUE(sim.network().RunUntil([&] { return first.all_here(); }));
      Outcomes outcomes(kSize);
      outcomes.Done(kMissing)(absl::OkStatus());
      for (int rank = 0; rank < kSize; ++rank) {
        if (rank != kMissing) sim.Start(rank, 10, algorithm, timeout, outcomes.Done(rank));
      }
      if (timeout > absl::Seconds(10)) {
        sim.network().RunFor(absl::Seconds(10));
        const std::vector<Wait> list = waits.List();
        ASSERT_EQ(list.size(), 1);
        EXPECT_THAT(list[0].what, HasSubstr(absl::StrCat(NameOf(kMissing), "/task:2"))) << list[0].what;
        EXPECT_EQ(list[0].peer, "/task:2");
        EXPECT_EQ(list[0].has, 5);
        EXPECT_EQ(list[0].needs, 6);
      }
      ASSERT_TRUE(sim.network().RunUntil([&] { return outcomes.all_here(); })) << sim.log();
      EXPECT_EQ(waits.List().size(), 0);
      for (int rank = 0; rank < kSize; ++rank) {
        if (rank == kMissing) continue;
        EXPECT_TRUE(absl::IsDeadlineExceeded(outcomes.status(rank))) << outcomes.status(rank);
        EXPECT_THAT(std::string(outcomes.status(rank).message()), HasSubstr(NameOf(kMissing)));
        EXPECT_THAT(std::string(outcomes.status(rank).message()), HasSubstr("has not started it"));
      }
    }
  }
}

TEST(CollectiveFault, ARankThatNeverJoinsIsNamed) {
  for (int missing = 0; missing < 4; ++missing) {
    Simulated sim(4, 1, {}, true, [](int, GroupOptions* options) { options->join_timeout = absl::Seconds(10); });
    sim.network().Kill(HostOf(missing));
    Outcomes outcomes(4);
    outcomes.Done(missing)(absl::OkStatus());
    for (int rank = 0; rank < 4; ++rank) {
      if (rank != missing) sim.Start(rank, 10, AlgorithmKind::kRing, absl::InfiniteDuration(), outcomes.Done(rank));
    }
    ASSERT_TRUE(sim.network().RunUntil([&] { return outcomes.all_here(); }, absl::Seconds(20))) << sim.log();
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == missing) continue;
      EXPECT_TRUE(absl::IsUnavailable(outcomes.status(rank))) << outcomes.status(rank);
      EXPECT_THAT(std::string(outcomes.status(rank).message()), HasSubstr(NameOf(missing)));
    }
  }
}

TEST(CollectiveSimulation, ARankMayJoinLate) {
  constexpr int kSize = 4;
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < kSize; ++rank) values.push_back(ValuesOf<float>(rank, 100));
  SimNetwork network(1);
  network.SetStreams(true);
  struct Late {
    std::unique_ptr<net::Transport> transport;
    CollectiveService service;
    std::unique_ptr<net::Listener> listener;
    std::unique_ptr<CollectiveGroup> group;
  };
  std::vector<Late> ranks(kSize);
  Outcomes outcomes(kSize);
  const auto start = [&](int rank) {
    GroupOptions options{.key = "g", .rank = rank};
    for (int i = 0; i < kSize; ++i) options.ranks.push_back({absl::StrCat("localhost:", 100 + i)});
    ranks[rank].transport = network.NewTransport(HostOf(rank));
    ranks[rank].listener = ranks[rank].transport->Listen(options.ranks[rank].address, &ranks[rank].service).value();
    options.transport = ranks[rank].transport.get();
    options.clock = network.clock(HostOf(rank));
    options.timers = network.timers(HostOf(rank));
    ranks[rank].group = CollectiveGroup::Make(&ranks[rank].service, options).value();
    ranks[rank].group->AllReduce(ElementsOf(absl::MakeSpan(values[rank])), Reduction::kSum, {}, outcomes.Done(rank));
  };
  for (int rank = 0; rank < kSize; ++rank)
    network.timers()->Schedule(absl::Seconds((rank * 7 + 5) % 11), [&, rank] { start(rank); });
  ASSERT_TRUE(network.RunUntil([&] { return outcomes.all_here(); })) << absl::StrJoin(network.log(), "\n");
  for (int rank = 0; rank < kSize; ++rank) {
    EXPECT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
    EXPECT_EQ(values[rank][7], Expected(Reduction::kSum, kSize, 7));
  }
  for (Late& rank : ranks) rank.group.reset();
  for (Late& rank : ranks) rank.listener.reset();
}

}  // namespace
}  // namespace millrace::collective
