// A whole cluster on a virtual clock: messages that are late, lost, doubled or out of order, and clients that leave.
#include "gmock/gmock.h"
#include "millrace/cluster/sim/sim_training_testing.h"

namespace millrace {
namespace {

class ClusterSimulation : public SimClusterTest {};

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Checks that nothing about steps is remembered any more.
void ExpectQuiet(SimCluster* cluster) {
  cluster->network().RunFor(absl::Seconds(1));
  EXPECT_THAT(cluster->Leftovers(), IsEmpty());
}

std::string Train(uint64_t seed) {
  SimCluster cluster(
      seed,
      {.network = {.max_delay = absl::Milliseconds(5), .delayed = 0.1, .max_extra_delay = absl::Milliseconds(100)}});
  {
    Trainer trainer(&cluster);
    if (trainer.Begin()) {
      for (int i = 0; i < 4; ++i) trainer.ExpectStep(static_cast<float>(cluster.Random(7)));
      // Several at once.
      std::vector<std::pair<float, TicketPtr>> steps;
      for (int i = 0; i < 3; ++i) steps.emplace_back(i * 2.f, trainer.Step(i * 2.f));
      for (const auto& [x, ticket] : steps) {
        if (trainer.Expect(ticket)) trainer.CheckStep(*ticket, x, /*alone=*/false);
      }
      const TicketPtr read = trainer.client().Run({}, {"read:0"});
      if (trainer.Expect(read)) {
        EXPECT_EQ(read->Value("read:0"), 7);
      }
      ExpectQuiet(&cluster);
      trainer.Expect(trainer.client().Close());
    }
    cluster.network().RunFor(absl::Seconds(1));
    for (const std::string& task : cluster.tasks()) EXPECT_THAT(cluster.worker(task).ListSessions(), IsEmpty()) << task;
    PrintLog(&cluster);
  }
  return absl::StrJoin(cluster.network().log(), "\n");
}

TEST_P(ClusterSimulation, LateMessagesInAnyOrderChangeNoResult) {
  ForSeeds(200, [](uint64_t seed) { Train(seed); });
}

// Two masters, one counter.
TEST_P(ClusterSimulation, SessionsOfSeveralMastersShareState) {
  ForSeeds(30, [](uint64_t seed) {
    SimCluster cluster(seed);
    Trainer a(&cluster, "client0", "worker0"), b(&cluster, "client1", "worker1");
    ASSERT_TRUE(a.Begin());
    ASSERT_TRUE(b.Expect(b.Create()));
    for (int i = 0; i < 3; ++i) {
      const TicketPtr one = a.Step(2), two = b.Step(5);
      if (a.Expect(one)) a.CheckStep(*one, 2, false);
      if (b.Expect(two)) b.CheckStep(*two, 5, false);
    }
    const TicketPtr read = b.client().Run({}, {"read:0"});
    if (b.Expect(read)) {
      EXPECT_EQ(read->Value("read:0"), 6);
    }
    ExpectQuiet(&cluster);
  });
}

TEST_P(ClusterSimulation, TheSameSeedGivesTheSameLog) {
  ForSeeds(50, [](uint64_t seed) { EXPECT_EQ(Train(seed), Train(seed)); });
}

// Trains under `options` until a few steps went well; every call ends, and the counter counts what was acknowledged.
void TrainThroughFaults(uint64_t seed, const net::SimOptions& options, absl::Duration limit) {
  SimCluster cluster(seed);
  Trainer trainer(&cluster);
  ASSERT_TRUE(trainer.Begin());
  cluster.network().SetOptions(options);
  for (int i = 0; i < 6; ++i) {
    if (!trainer.client().has_session()) {
      const TicketPtr create = trainer.Create();
      ASSERT_TRUE(trainer.client().Wait(create, limit)) << absl::StrJoin(cluster.Leftovers(), "\n");
      if (!create->status.ok()) continue;
    }
    const float x = static_cast<float>(cluster.Random(7));
    const TicketPtr step = trainer.Step(x);
    ASSERT_TRUE(trainer.client().Wait(step, limit)) << absl::StrJoin(cluster.Leftovers(), "\n");
    if (step->status.ok()) {
      trainer.CheckStep(*step, x);
      continue;
    }
    EXPECT_THAT(step->status.code(), AnyOf(Eq(absl::StatusCode::kUnavailable), Eq(absl::StatusCode::kAborted),
                                           Eq(absl::StatusCode::kAlreadyExists)))
        << step->status;
    EXPECT_THAT(std::string(step->status.message()), AnyOf(HasSubstr("/job:"), HasSubstr(":2222"))) << step->status;
    trainer.client().Forget();
  }
  cluster.network().SetOptions({});
  cluster.network().RunFor(absl::Seconds(150));
  if (trainer.Expect(trainer.Create())) {
    const TicketPtr read = trainer.client().Run({}, {"read:0"});
    if (trainer.Expect(read)) trainer.CheckCounter(read->Value("read:0"));
    trainer.ExpectStep(4);
  }
  ExpectQuiet(&cluster);
  PrintLog(&cluster);
}

TEST_P(ClusterSimulation, LostMessagesEndCallsAndLoseNoUpdate) {
  ForSeeds(150, [](uint64_t seed) {
    TrainThroughFaults(seed, {.lost = 0.02, .reset_after = absl::Seconds(3)}, absl::Seconds(30));
  });
}

// With this seed, worker 1 notices first that its connection to the master is broken, and the ps, which waits for
// worker 1, reports to the master first.
TEST_P(ClusterSimulation, ALineThatItsFarEndFindsBrokenFirstIsUnavailableToo) {
  TrainThroughFaults(1762, {.lost = 0.02, .reset_after = absl::Seconds(3)}, absl::Seconds(30));
}

TEST_P(ClusterSimulation, DoubledMessagesDoubleNoUpdate) {
  ForSeeds(150, [](uint64_t seed) {
    TrainThroughFaults(seed, {.max_delay = absl::Milliseconds(5), .duplicated = 0.1}, absl::Seconds(30));
  });
}

TEST_P(ClusterSimulation, AStepThatIsAskedForTwiceRunsOnce) {
  for (const char* method : {"RunStep", "RunGraph"}) {
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      SimCluster cluster(seed);
      Trainer trainer(&cluster);
      ASSERT_TRUE(trainer.Begin() && trainer.ExpectStep(1));
      cluster.network().OnMessage([&](const net::SimMessage& message) {
        const bool twice = message.kind == net::SimMessage::Kind::kRequest && absl::EndsWith(message.method, method);
        return twice ? net::SimFate::kDuplicate : net::SimFate::kDeliver;
      });
      const TicketPtr step = trainer.Step(1);
      ASSERT_TRUE(trainer.client().Wait(step, absl::Seconds(5)));
      cluster.network().RunFor(absl::Seconds(1));
      cluster.network().OnMessage(nullptr);
      const TicketPtr read = trainer.client().Run({}, {"read:0"});
      if (trainer.Expect(read)) {
        EXPECT_LE(read->Value("read:0"), 2) << method << " seed " << seed;
      }
      ExpectQuiet(&cluster);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tensors, ClusterSimulation, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
