// What clients may do to a simulated cluster: close, cancel, give up, leave, reset, and come before the tasks do.
#include "gmock/gmock.h"
#include "millrace/cluster/sim/sim_training_testing.h"

namespace millrace {
namespace {

class ClusterClientsTest : public SimClusterTest {};

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void ExpectError(const Ticket& ticket, absl::StatusCode code, const std::string& text = "") {
  EXPECT_TRUE(ticket.done) << ticket.what << " has not ended";
  EXPECT_EQ(ticket.status.code(), code) << ticket.status;
  EXPECT_THAT(std::string(ticket.status.message()), HasSubstr(text));
}

// A step that waits for data, and a random moment of it.
class ClusterClients {
 public:
  explicit ClusterClients(uint64_t seed) : cluster(seed), trainer(&cluster) { begun = trainer.Begin(); }

  TicketPtr SlowStep(absl::Duration timeout = absl::InfiniteDuration(),
                     absl::Duration step_timeout = absl::ZeroDuration()) {
    const TicketPtr step = trainer.SlowStep(timeout, step_timeout);
    // What the client says after this comes after it.
    network().RunFor(absl::Milliseconds(1) + absl::Microseconds(cluster.Random(15000)));
    EXPECT_FALSE(step->done) << step->status;
    return step;
  }
  // What a step left is gone within moments, and the cluster works.
  void ExpectQuiet() {
    network().RunFor(absl::Milliseconds(200));
    EXPECT_THAT(cluster.Leftovers(), IsEmpty());
    Trainer next(&cluster, "next");
    if (next.Begin()) next.ExpectStep(2);
  }
  net::SimNetwork& network() { return cluster.network(); }

  SimCluster cluster;
  Trainer trainer;
  bool begun = false;
};

TEST_P(ClusterClientsTest, AStepGetsWhatItWaitedFor) {
  ForSeeds(30, [](uint64_t seed) {
    ClusterClients c(seed);
    const TicketPtr step = c.SlowStep();
    c.network().RunFor(absl::Minutes(5));  // peers that are well may be waited for as long as it takes
    EXPECT_FALSE(step->done) << step->status;
    Trainer other(&c.cluster, "other", "worker1");
    other.Expect(other.Create());
    other.Expect(other.client().Run({}, {}, {"put"}));
    if (c.trainer.Expect(step)) {
      EXPECT_EQ(step->Value("slow:0"), 6);
    }
    c.ExpectQuiet();
  });
}

TEST_P(ClusterClientsTest, ATensorMayBeFetchedTwice) {
  ClusterClients c(1);
  const TicketPtr step = c.trainer.client().Run({}, {"read:0", "read:0"});
  ASSERT_TRUE(c.trainer.Expect(step));
  EXPECT_EQ(step->Value("read:0"), 0);
}

TEST_P(ClusterClientsTest, ClosingASessionEndsItsSteps) {
  ForSeeds(40, [](uint64_t seed) {
    ClusterClients c(seed);
    const TicketPtr step = c.SlowStep();
    const TicketPtr close = c.trainer.client().Close();
    c.network().RunFor(absl::Milliseconds(100));
    ExpectError(*step, absl::StatusCode::kCancelled, "closed");
    c.trainer.Expect(close);
    const TicketPtr late = c.trainer.Step(1);
    c.trainer.client().Wait(late);
    ExpectError(*late, absl::StatusCode::kAborted, SimCluster::Name("worker0"));
    for (const std::string& task : c.cluster.tasks())
      EXPECT_THAT(c.cluster.worker(task).ListSessions(), IsEmpty()) << task;
    c.ExpectQuiet();
  });
}

TEST_P(ClusterClientsTest, AClientThatCancelsOrLeavesEndsItsStep) {
  ForSeeds(60, [](uint64_t seed) {
    ClusterClients c(seed);
    const TicketPtr step = c.SlowStep();
    if (seed % 2 == 0) {
      step->call->Cancel();
      c.network().RunFor(absl::Milliseconds(10));
      ExpectError(*step, absl::StatusCode::kCancelled);
    } else {
      c.network().Kill("client");
    }
    c.ExpectQuiet();
  });
}

TEST_P(ClusterClientsTest, AClientThatLeavesWhileItsSessionIsMadeLeavesNone) {
  ForSeeds(60, [](uint64_t seed) {
    SimCluster cluster(seed);
    Trainer trainer(&cluster);
    const TicketPtr create = trainer.Create();
    cluster.network().RunFor(absl::Microseconds(cluster.Random(5000)));
    if (create->done) return;
    if (seed % 2 == 0) {
      create->call->Cancel();
    } else {
      cluster.network().Kill("client");
    }
    cluster.network().RunFor(absl::Seconds(1));
    // The answer may have been on its way: then there is a session, whole.
    const size_t made = cluster.master("worker0").sessions().size();
    for (const std::string& task : cluster.tasks()) EXPECT_EQ(cluster.worker(task).ListSessions().size(), made) << task;
  });
}

TEST_P(ClusterClientsTest, ADeadlineEndsAStep) {
  ForSeeds(60, [](uint64_t seed) {
    ClusterClients c(seed);
    const bool by_transport = seed % 2 == 0;
    const TicketPtr step =
        by_transport ? c.SlowStep(absl::Seconds(1)) : c.SlowStep(absl::InfiniteDuration(), absl::Seconds(1));
    if (seed % 3 == 0) c.cluster.Hang("ps0");  // the shorter limit wins
    c.trainer.client().Wait(step, absl::Seconds(10));
    ExpectError(*step, absl::StatusCode::kDeadlineExceeded);
    EXPECT_LE(step->ended - step->begun, absl::Milliseconds(1100));
    if (seed % 3 == 0) c.cluster.Resume("ps0");
    c.ExpectQuiet();
  });
}

TEST_P(ClusterClientsTest, PeersNoticeWithinSecondsThatTheirMasterHangs) {
  ForSeeds(60, [](uint64_t seed) {
    ClusterClients c(seed);
    c.trainer.ExpectStep(1);
    const TicketPtr step = c.trainer.Step(2);
    c.network().RunFor(absl::Microseconds(c.cluster.Random(8000)));
    if (step->done) return;
    c.cluster.Hang("worker0");
    c.network().RunFor(absl::Seconds(7));
    for (const char* task : {"ps0", "worker1"}) {
      EXPECT_THAT(c.cluster.worker(task).ListRunning(), IsEmpty()) << task;
      EXPECT_THAT(c.cluster.worker(task).ListWaits(), IsEmpty()) << task;
    }
    c.cluster.Resume("worker0");
    c.trainer.client().Wait(step, absl::Seconds(7));
    EXPECT_TRUE(step->done);
  });
}

// What its part did may be lost with it, and what the step waits for may depend on that.
TEST_P(ClusterClientsTest, AStepFailsWhenATaskIsLostWhosePartInItHasEnded) {
  ForSeeds(60, [](uint64_t seed) {
    ClusterClients c(seed);
    const TicketPtr step =
        c.trainer.client().Run({{"x:0", Tensor::Scalar(1.f)}}, {"QueueDequeueV2:0"}, {"sum"}, absl::InfiniteDuration());
    c.network().RunFor(absl::Seconds(1) + absl::Microseconds(c.cluster.Random(1000000)));
    EXPECT_THAT(c.cluster.worker("worker1").ListRunning(), IsEmpty());
    EXPECT_FALSE(step->done) << step->status;
    const uint64_t how = seed % 3;
    if (how == 0) c.cluster.Kill("worker1");
    if (how == 1) c.cluster.Restart("worker1");
    if (how == 2) c.cluster.Hang("worker1");
    c.trainer.client().Wait(step, absl::Seconds(7));
    ExpectError(*step, how == 1 ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable,
                SimCluster::Name("worker1"));
  });
}

// The message that cancels its part on the ps is lost; the part must not take what a later session puts there.
TEST_P(ClusterClientsTest, AnEndedStepTakesNothingFromALaterSessionAlsoIfItsEndWasNotHeardOf) {
  ForSeeds(60, [](uint64_t seed) {
    ClusterClients c(seed);
    const TicketPtr step = c.SlowStep();
    c.network().RunFor(absl::Milliseconds(100));
    c.cluster.Cut("worker0", "ps0");
    c.network().RunFor(absl::Milliseconds(c.cluster.Random(2000)));
    step->call->Cancel();
    c.network().RunFor(absl::Milliseconds(1 + c.cluster.Random(1000)));
    EXPECT_TRUE(step->done);
    c.cluster.Heal("worker0", "ps0");
    Trainer next(&c.cluster, "next");
    next.Expect(next.Create());
    next.Expect(next.client().Run({}, {}, {"put"}));
    const TicketPtr slow = next.SlowStep();
    if (next.Expect(slow)) {
      EXPECT_EQ(slow->Value("slow:0"), 6);
    }
  });
}

TEST_P(ClusterClientsTest, ResetEndsSessionsAndEmptiesTheCluster) {
  ForSeeds(40, [](uint64_t seed) {
    ClusterClients c(seed);
    const TicketPtr step = c.SlowStep();
    const TicketPtr reset = c.trainer.client().Reset();
    c.network().RunFor(absl::Milliseconds(100));
    ExpectError(*step, absl::StatusCode::kAborted, "reset");
    c.trainer.Expect(reset);
    const TicketPtr late = c.trainer.Step(1);
    c.trainer.client().Wait(late);
    ExpectError(*late, absl::StatusCode::kAborted, SimCluster::Name("worker0"));
    c.trainer.Expect(c.trainer.Create());
    const TicketPtr read = c.trainer.client().Run({}, {"read:0"});
    c.trainer.client().Wait(read);
    ExpectError(*read, absl::StatusCode::kFailedPrecondition, "counter");
    c.ExpectQuiet();
  });
}

TEST_P(ClusterClientsTest, ASessionWaitsForTasksToComeUp) {
  ForSeeds(30, [](uint64_t seed) {
    SimCluster cluster(seed, {.absent = {"ps0"}});
    Trainer trainer(&cluster);
    const TicketPtr create = trainer.Create();
    cluster.network().RunFor(absl::Seconds(1 + cluster.Random(100)));
    EXPECT_FALSE(create->done) << create->status;
    cluster.Start("ps0");
    if (trainer.Expect(create) && trainer.Expect(trainer.Init())) trainer.ExpectStep(3);
  });
}

TEST_P(ClusterClientsTest, ASessionThatLacksATaskSaysWhichWhenItsTimeIsOver) {
  SimCluster cluster(1, {.missing_task_timeout = absl::Minutes(2), .absent = {"worker1"}});
  Trainer trainer(&cluster);
  for (const bool own_limit : {false, true}) {
    const TicketPtr create =
        own_limit ? trainer.client().Create(TrainingGraph(), absl::InfiniteDuration(), 3000) : trainer.Create();
    trainer.client().Wait(create);
    ExpectError(*create, absl::StatusCode::kDeadlineExceeded, SimCluster::Name("worker1"));
    EXPECT_NEAR(absl::ToDoubleSeconds(create->ended - create->begun), own_limit ? 3 : 120, 0.1);
  }
}

TEST_P(ClusterClientsTest, ARestartedTaskIsNamedAndANewSessionWorks) {
  ForSeeds(60, [](uint64_t seed) {
    ClusterClients c(seed);
    c.trainer.ExpectStep(1);
    const std::string task = seed % 2 == 0 ? "ps0" : "worker1";
    c.cluster.Restart(task);
    const TicketPtr step = c.trainer.Step(1);
    c.trainer.client().Wait(step, absl::Seconds(1));
    ExpectError(*step, absl::StatusCode::kAborted, SimCluster::Name(task));
    EXPECT_THAT(std::string(step->status.message()), HasSubstr("restarted"));
    c.trainer.Expect(c.trainer.Create());
    const TicketPtr read = c.trainer.client().Run({}, {"read:0"});
    c.trainer.client().Wait(read);
    if (task == "ps0") {
      ExpectError(*read, absl::StatusCode::kFailedPrecondition, "counter");
    } else {
      EXPECT_EQ(read->Value("read:0"), 1);
    }
    c.ExpectQuiet();
  });
}

TEST_P(ClusterClientsTest, SessionsOfAMasterThatIsNoMoreGoWhenItComesBack) {
  ForSeeds(20, [](uint64_t seed) {
    SimCluster cluster(seed);
    Trainer trainer(&cluster);
    ASSERT_TRUE(trainer.Begin() && trainer.ExpectStep(1));
    cluster.Restart("worker0");
    trainer.Expect(trainer.Create());
    for (const std::string& task : cluster.tasks()) {
      const std::vector<std::shared_ptr<WorkerSession>> sessions = cluster.worker(task).ListSessions();
      ASSERT_EQ(sessions.size(), 1u) << task;
      EXPECT_EQ(sessions[0]->handle(), trainer.client().session()) << task;
    }
    trainer.ExpectStep(1);
  });
}

// A step in several calls: fed x, it gives cond, and later what is wanted last.
class PartialStep {
 public:
  PartialStep(uint64_t seed, std::vector<std::string> wanted_last) : c(seed), last(std::move(wanted_last)) {
    std::vector<std::string> fetches = last;
    fetches.push_back("cond:0");
    const TicketPtr setup = c.trainer.client().SetUpPartial({"x:0"}, fetches);
    if (c.trainer.Expect(setup)) handle = setup->handle;
    c.network().RunFor(absl::Microseconds(c.cluster.Random(10000)));
  }
  TicketPtr First() { return c.trainer.client().RunPartial(handle, {{"x:0", Tensor::Scalar(2.f)}}, {"cond:0"}); }
  TicketPtr Last(absl::Duration timeout = absl::InfiniteDuration()) {
    return c.trainer.client().RunPartial(handle, {}, last, timeout);
  }

  ClusterClients c;
  const std::vector<std::string> last;
  std::string handle;
};

TEST_P(ClusterClientsTest, AStepInSeveralCallsGoesOnBetweenThem) {
  ForSeeds(30, [](uint64_t seed) {
    PartialStep p(seed, {"sum:0", "after:0"});
    const TicketPtr first = p.First();
    if (p.c.trainer.Expect(first)) {
      EXPECT_EQ(first->Value("cond:0"), -2);
    }
    p.c.network().RunFor(absl::Seconds(seed % 3 * 100));
    const TicketPtr last = p.Last();
    if (p.c.trainer.Expect(last)) {
      EXPECT_EQ(last->Value("sum:0"), 4);
      EXPECT_EQ(last->Value("after:0"), 1);
    }
    p.c.ExpectQuiet();
  });
}

TEST_P(ClusterClientsTest, AStepInSeveralCallsEndsWithItsSessionItsClientAndItsTasks) {
  ForSeeds(80, [](uint64_t seed) {
    PartialStep p(seed, {"slow:0"});
    SimClient& client = p.c.trainer.client();
    switch (seed % 4) {
      case 0: {  // the session is closed between the calls
        p.c.trainer.Expect(client.Close());
        break;
      }
      case 1: {  // in a call that waits
        const TicketPtr last = p.Last();
        p.c.network().RunFor(absl::Milliseconds(20));
        EXPECT_FALSE(last->done) << last->status;
        p.c.trainer.Expect(client.Close());
        client.Wait(last, absl::Seconds(1));
        ExpectError(*last, absl::StatusCode::kCancelled, "closed");
        break;
      }
      case 2: {  // the client gives up on a call
        const TicketPtr last = p.Last(absl::Seconds(1));
        client.Wait(last, absl::Seconds(2));
        ExpectError(*last, absl::StatusCode::kDeadlineExceeded);
        break;
      }
      default: {  // a task dies between the calls
        p.c.cluster.Kill("ps0");
        p.c.network().RunFor(absl::Milliseconds(100));
        const TicketPtr first = p.First();
        client.Wait(first, absl::Seconds(1));
        ExpectError(*first, absl::StatusCode::kUnavailable, SimCluster::Name("ps0"));
        p.c.cluster.Start("ps0");
      }
    }
    p.c.ExpectQuiet();
  });
}

INSTANTIATE_TEST_SUITE_P(Tensors, ClusterClientsTest, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
