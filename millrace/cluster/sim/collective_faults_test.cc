// TensorFlow's collective ops on a simulated cluster: a fault at every message, and everything at once.
#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "millrace/cluster/sim/sim_training_testing.h"

namespace millrace {
namespace {

using ::testing::IsEmpty;

constexpr int kWorkers = 3;

std::string WorkerTask(int rank) { return absl::StrCat("worker", rank); }

// The ops of one worker, or of all of them: y = the sum of everybody's x, all = everybody's x, cast = worker 1's x.
// With `shared`, x passes through the ps.
pb::GraphDef CollectiveGraph(absl::Span<const int> ranks, bool shared) {
  Graph graph;
  GraphBuilder b(&graph);
  for (const int rank : ranks) {
    const auto on = [&](const std::string& task) { b.device = absl::StrCat(SimCluster::Name(task), "/device:CPU:0"); };
    on(WorkerTask(rank));
    const auto value = static_cast<float>(rank + 1);
    Endpoint x = b.Const(Tensor::Of<float>({value, 10 * value, 100 * value, 1000 * value}));
    if (shared) {
      on("ps0");
      x = b.Op("Identity", {b.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({4})}},
                                 absl::StrCat("x", rank))});
      on(WorkerTask(rank));
    }
    b.Op("CollectiveReduce", {x},
         {{"group_size", int64_t{kWorkers}},
          {"group_key", int64_t{1}},
          {"instance_key", int64_t{1}},
          {"merge_op", "Add"},
          {"final_op", "Id"},
          {"subdiv_offsets", std::vector<int64_t>{0}}},
         absl::StrCat("y", rank));
    const Endpoint size = b.Scalar<int32_t>(kWorkers), key = b.Scalar<int32_t>(1);
    b.Op("CollectiveGatherV2", {x, size, key, b.Scalar<int32_t>(2)}, {}, absl::StrCat("all", rank));
    if (rank == 1) {
      b.Op("CollectiveBcastSendV2", {x, size, key, b.Scalar<int32_t>(3)}, {}, absl::StrCat("cast", rank));
    } else {
      b.Op("CollectiveBcastRecvV2", {size, key, b.Scalar<int32_t>(3), b.Ints({4})}, {{"T", DType::kFloat}},
           absl::StrCat("cast", rank));
    }
  }
  MR_CHECK(b.ok());
  return ExportGraphDef(graph);
}

std::vector<std::string> CollectiveFetches(absl::Span<const int> ranks) {
  std::vector<std::string> fetches;
  for (const int rank : ranks) {
    for (const char* stem : {"y", "all", "cast"}) fetches.push_back(absl::StrCat(stem, rank, ":0"));
  }
  return fetches;
}

void ExpectRightSums(const Ticket& ticket) {
  for (const auto& [name, tensor] : ticket.tensors) {
    for (int i = 0; i < 4; ++i) {
      const float unit = tensor.data<float>()[i];
      const float power = i == 0 ? 1 : i == 1 ? 10 : i == 2 ? 100 : 1000;
      EXPECT_EQ(unit, name[0] == 'y' ? 6 * power : name[0] == 'a' ? power : 2 * power) << name;
    }
    if (name[0] != 'a') continue;
    for (int rank = 0; rank < kWorkers; ++rank) {
      EXPECT_EQ(tensor.data<float>()[4 * rank], static_cast<float>(rank + 1)) << name;
    }
  }
}

struct CollectiveSetup {
  bool one_master = false;  // all ops in one session; otherwise each worker's in its own
  bool shared = false;      // the ps has parts of every session
};

// Sessions whose ops meet.
class Collectives {
 public:
  Collectives(uint64_t seed, const CollectiveSetup& setup) : setup_(setup), cluster(seed, Options()) {
    const int clients = setup.one_master ? 1 : kWorkers;
    for (int i = 0; i < clients; ++i) Hire(i);
  }
  static SimClusterOptions Options() {
    SimClusterOptions options{.workers = kWorkers};
    options.collective_leader = "worker0";
    return options;
  }

  net::SimNetwork& network() { return cluster.network(); }
  int clients() const { return static_cast<int>(clients_.size()); }
  SimClient& client(int i) { return *clients_[i]; }
  std::vector<int> RanksOf(int i) const { return setup_.one_master ? std::vector<int>{0, 1, 2} : std::vector<int>{i}; }

  // Creates sessions where there are none. Returns whether there are.
  bool Open(absl::Duration limit = absl::Minutes(1)) {
    std::vector<TicketPtr> creates(clients());
    for (int i = 0; i < clients(); ++i) {
      if (!client(i).has_session()) creates[i] = client(i).Create(CollectiveGraph(RanksOf(i), setup_.shared));
    }
    network().RunUntil(
        [&] { return std::all_of(creates.begin(), creates.end(), [](const auto& t) { return !t || t->done; }); },
        limit);
    bool all = true;
    for (int i = 0; i < clients(); ++i) {
      if (creates[i] != nullptr && !creates[i]->status.ok()) client(i).Forget();
      all &= client(i).has_session();
    }
    return all;
  }
  TicketPtr Run(int i) {
    NamedTensors feeds;
    for (const int rank : setup_.shared ? RanksOf(i) : std::vector<int>{}) {
      const auto value = static_cast<float>(rank + 1);
      feeds.emplace_back(absl::StrCat("x", rank, ":0"),
                         Tensor::Of<float>({value, 10 * value, 100 * value, 1000 * value}));
    }
    return client(i).Run(std::move(feeds), CollectiveFetches(RanksOf(i)));
  }
  // Every client runs once, at the same time.
  std::vector<TicketPtr> RunAll() {
    std::vector<TicketPtr> runs;
    for (int i = 0; i < clients(); ++i) runs.push_back(Run(i));
    return runs;
  }
  bool Await(const std::vector<TicketPtr>& runs, absl::Duration limit) {
    return network().RunUntil(
        [&] { return std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run->done; }); }, limit);
  }
  // After faults have passed, every client runs again and again, as in a training, in a new session where its own is
  // gone: all of them soon have results. `runs` are those that have not ended yet.
  void ExpectRecovery(std::vector<TicketPtr> runs = {}) {
    runs.resize(clients());
    std::vector<TicketPtr> creates(clients());
    std::vector<int> failed(clients()), right(clients());
    const auto all_right = [&] { return std::all_of(right.begin(), right.end(), [](int count) { return count > 0; }); };
    const bool ended = network().RunUntil(
        [&] {
          for (int i = 0; i < clients(); ++i) Proceed(i, &runs[i], &creates[i], &failed[i], &right[i]);
          return all_right() || *std::max_element(failed.begin(), failed.end()) > 30;
        },
        absl::Minutes(10));
    EXPECT_TRUE(ended && all_right()) << "no recovery after " << absl::StrJoin(failed, ", ") << " failures and "
                                      << absl::StrJoin(right, ", ") << " results:\n"
                                      << absl::StrJoin(cluster.Leftovers(), "\n");
    for (const TicketPtr& run : runs) {
      if (run != nullptr && !run->done) run->call->Cancel();
    }
  }

 private:
  void Proceed(int i, TicketPtr* run, TicketPtr* create, int* failed, int* right) {
    if (*create != nullptr && (*create)->done) *create = nullptr;
    if (*run != nullptr && (*run)->done) {
      const Status status = std::exchange(*run, nullptr)->status;
      // A session may outlive a failed step, so most attempts stay in it.
      ++*(status.ok() ? right : failed);
      if (!status.ok() && (absl::IsAborted(status) || *failed % 3 == 0)) client(i).Forget();
    }
    if (*run != nullptr || *create != nullptr) return;
    if (client(i).has_session()) {
      *run = Run(i);
    } else {
      *create = client(i).Create(CollectiveGraph(RanksOf(i), setup_.shared));
    }
  }
  void Hire(int i) {
    clients_.push_back(std::make_unique<SimClient>(&cluster, absl::StrCat("client", i), WorkerTask(i)));
  }

  const CollectiveSetup setup_;

 public:
  SimCluster cluster;

 private:
  std::vector<std::unique_ptr<SimClient>> clients_;
};

class CollectiveFaults : public SimClusterTest {};

TEST_P(CollectiveFaults, EveryOpIsRightWhateverTheNetworkDelays) {
  ForSeeds(40, [](uint64_t seed) {
    Collectives c(seed, {.one_master = seed % 4 == 0, .shared = seed % 2 == 0});
    c.network().SetOptions({.delayed = 0.1, .max_extra_delay = absl::Milliseconds(200)});
    ASSERT_TRUE(c.Open());
    for (int step = 0; step < 4; ++step) {
      const std::vector<TicketPtr> runs = c.RunAll();
      ASSERT_TRUE(c.Await(runs, absl::Minutes(1))) << absl::StrJoin(c.cluster.Leftovers(), "\n");
      for (const TicketPtr& run : runs) {
        ASSERT_EQ(run->status, absl::OkStatus());
        ExpectRightSums(*run);
      }
    }
    c.network().RunFor(absl::Seconds(1));
    EXPECT_THAT(c.cluster.Leftovers(), IsEmpty());
    PrintLog(&c.cluster);
  });
}

// Masters that run the same collective step have parts of it on one task, which must not take them for one step.
TEST_P(CollectiveFaults, TheStepsOfSeveralMastersMeetOnASharedTask) {
  ForSeeds(40, [](uint64_t seed) {
    Collectives c(seed, {.shared = true});
    ASSERT_TRUE(c.Open());
    for (int step = 0; step < 3; ++step) {
      const std::vector<TicketPtr> runs = c.RunAll();
      ASSERT_TRUE(c.Await(runs, absl::Minutes(1))) << absl::StrJoin(c.cluster.Leftovers(), "\n");
      for (const TicketPtr& run : runs) {
        ASSERT_EQ(run->status, absl::OkStatus());
        ExpectRightSums(*run);
      }
    }
  });
}

enum class CollectiveFault { kLose, kCut, kKillSender, kKillReceiver, kHangReceiver };

// Runs the ops with the fault at the message number `at` between tasks; a negative number is no fault. Returns the
// number of messages.
int RunCollectivesWithFault(const CollectiveSetup& setup, CollectiveFault fault, int at) {
  // Before the cluster, whose calls end with messages too.
  int messages = 0;
  std::vector<std::string> blamed;  // an error names one of these tasks
  std::string gone;                 // whose clients hear nothing, or only that it is gone
  const auto task_of = [](const std::string& host) { return host.substr(0, host.find('.')); };
  bool armed = true;
  Collectives c(/*seed=*/1, setup);
  EXPECT_TRUE(c.Open());
  c.network().OnMessage([&](const net::SimMessage& message) {
    const std::string from = task_of(message.from), to = task_of(message.to);
    if (!armed || absl::StartsWith(from, "client") || absl::StartsWith(to, "client")) return net::SimFate::kByChance;
    if (messages++ != at) return net::SimFate::kDeliver;
    blamed = {from, to};
    switch (fault) {
      case CollectiveFault::kLose:
        return net::SimFate::kLose;
      case CollectiveFault::kCut:
        c.cluster.Cut(from, to);
        return net::SimFate::kDeliver;
      case CollectiveFault::kKillSender:
      case CollectiveFault::kKillReceiver:
        gone = fault == CollectiveFault::kKillSender ? from : to;
        c.cluster.Kill(gone);
        break;
      case CollectiveFault::kHangReceiver:
        gone = to;
        c.cluster.Hang(gone);
        break;
    }
    blamed = {gone};
    return net::SimFate::kDeliver;
  });
  std::vector<TicketPtr> runs = c.RunAll();
  if (!c.Await(runs, absl::Seconds(60))) {
    // A group that is not complete waits for a member that may come again, since its task is there.
    const bool one_failed =
        std::any_of(runs.begin(), runs.end(), [](const TicketPtr& run) { return run->done && !run->status.ok(); });
    EXPECT_TRUE(one_failed) << "all wait";
    for (const std::string& wait : c.cluster.Leftovers()) {
      if (!absl::StrContains(wait, " waits for ") || (!gone.empty() && absl::StartsWith(wait, gone))) continue;
      EXPECT_TRUE(absl::StrContains(wait, " of group 1") || absl::StrContains(wait, "for group 1, which")) << wait;
      EXPECT_FALSE(absl::StrContains(wait, "data of instance")) << wait;
    }
  }
  for (int i = 0; i < c.clients(); ++i) {
    const Ticket& run = *runs[i];
    if (!run.done) continue;
    if (run.status.ok()) {
      ExpectRightSums(run);
      continue;
    }
    EXPECT_GE(at, 0) << run.status;
    if (gone == WorkerTask(i)) continue;  // the client's own server
    EXPECT_FALSE(absl::IsCancelled(run.status) || absl::IsInternal(run.status)) << run.status;
    bool named = false;
    for (const std::string& task : blamed) {
      named |= absl::StrContains(run.status.message(), SimCluster::Name(task)) ||
               absl::StrContains(run.status.message(), SimCluster::Address(task));
    }
    EXPECT_TRUE(named) << "client " << i << ": " << run.status;
  }
  // It passes, and everything works again.
  armed = false;
  if (!blamed.empty()) {
    if (fault == CollectiveFault::kCut) c.cluster.Heal(blamed[0], blamed[1]);
    if (fault == CollectiveFault::kHangReceiver) c.cluster.Resume(gone);
    if (!gone.empty() && !c.cluster.IsAlive(gone)) c.cluster.Start(gone);
  }
  for (TicketPtr& run : runs) {
    if (run->done) run = nullptr;
  }
  c.ExpectRecovery(std::move(runs));
  PrintLog(&c.cluster);
  return messages;
}

constexpr const char* kCollectiveFaultNames[] = {"lose", "cut", "kill sender", "kill receiver", "hang receiver"};

void ForEveryCollectiveMessage(CollectiveFault fault) {
  for (const CollectiveSetup& setup :
       {CollectiveSetup{}, CollectiveSetup{.one_master = true}, CollectiveSetup{.shared = true}}) {
    const std::string name = absl::StrCat(kCollectiveFaultNames[static_cast<int>(fault)],
                                          setup.one_master ? ", one master" : "", setup.shared ? ", shared ps" : "");
    if (const char* const wanted = std::getenv("MILLRACE_FAULT")) {
      const std::vector<std::string> words = absl::StrSplit(wanted, '@');
      int at = 0;
      MR_CHECK(words.size() == 2 && absl::SimpleAtoi(words[1], &at));
      if (words[0] == name) RunCollectivesWithFault(setup, fault, at);
      continue;
    }
    const int messages = RunCollectivesWithFault(setup, fault, -1);
    ASSERT_GT(messages, 10);
    for (int at = 0; at < messages; ++at) {
      RunCollectivesWithFault(setup, fault, at);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "replay with MILLRACE_FAULT=\"" << name << "@" << at << "\"";
    }
  }
}

TEST_P(CollectiveFaults, AnyLostMessageEndsInAnErrorOrInTheResult) {
  ForEveryCollectiveMessage(CollectiveFault::kLose);
}
TEST_P(CollectiveFaults, AnyCutEndsInAnErrorOrInTheResult) { ForEveryCollectiveMessage(CollectiveFault::kCut); }
TEST_P(CollectiveFaults, ASenderMayDieAtAnyMessage) { ForEveryCollectiveMessage(CollectiveFault::kKillSender); }
TEST_P(CollectiveFaults, AReceiverMayDieAtAnyMessage) { ForEveryCollectiveMessage(CollectiveFault::kKillReceiver); }
TEST_P(CollectiveFaults, AReceiverMayHangAtAnyMessage) { ForEveryCollectiveMessage(CollectiveFault::kHangReceiver); }

TEST_P(CollectiveFaults, TheMembersMeetAgainAfterFaultsAtRandom) {
  ForSeeds(40, [](uint64_t seed) {
    Collectives c(seed, {.one_master = seed % 5 == 0, .shared = seed % 2 == 0});
    c.network().SetOptions({.delayed = 0.05, .max_extra_delay = absl::Milliseconds(200), .lost = 0.01});
    c.Open();
    for (int round = 0; round < 3; ++round) {
      const std::string task = c.cluster.tasks()[c.cluster.Random(kWorkers + 1)];
      const int kind = c.cluster.Random(3);
      c.network().timers()->Schedule(absl::Microseconds(c.cluster.Random(20000)), [&c, task, kind] {
        if (kind == 0) c.cluster.Kill(task);
        if (kind == 1) c.cluster.Hang(task);
        if (kind == 2 && task != "worker0") c.cluster.CutOneWay(task, "worker0");
      });
      std::vector<TicketPtr> runs;
      for (int i = 0; i < c.clients(); ++i) {
        if (c.client(i).has_session() && c.cluster.Random(4) > 0) runs.push_back(c.Run(i));
      }
      c.network().RunFor(absl::Milliseconds(c.cluster.Random(8000)));
      if (!c.cluster.IsAlive(task)) c.cluster.Start(task);
      c.cluster.Resume(task);
      if (task != "worker0") c.cluster.Heal(task, "worker0");
      // Members that nobody runs with wait; their clients give up.
      for (const TicketPtr& run : runs) {
        if (!run->done) run->call->Cancel();
      }
      EXPECT_TRUE(c.Await(runs, absl::Minutes(1)));
      for (int i = 0; i < c.clients(); ++i) c.client(i).Forget();
      c.Open();
    }
    c.network().SetOptions({});
    c.ExpectRecovery();
    PrintLog(&c.cluster);
  });
}

INSTANTIATE_TEST_SUITE_P(Tensors, CollectiveFaults, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
