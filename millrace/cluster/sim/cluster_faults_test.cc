// Tasks of a simulated cluster that die, hang, are cut off or restart at every point of making a session and of a step.
#include "gmock/gmock.h"
#include "millrace/cluster/sim/sim_training_testing.h"

namespace millrace {
namespace {

class ClusterFaults : public SimClusterTest {};

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A fault and the task that it hits.
struct Fault {
  enum Kind { kKill, kRestart, kHang, kCut };
  Kind kind;
  std::string task;
  std::string other = {};  // that it is cut off from

  bool IsSilent() const { return kind == kHang || kind == kCut; }
  bool LosesStateOf(const std::string& hit) const { return !IsSilent() && task == hit; }
  std::string ToString() const {
    constexpr const char* kNames[] = {"kill", "restart", "hang", "cut"};
    return absl::StrCat(kNames[kind], " ", task, other.empty() ? "" : "-", other);
  }
  void Strike(SimCluster* cluster) const {
    if (kind == kKill) cluster->Kill(task);
    if (kind == kRestart) cluster->Restart(task);
    if (kind == kHang) cluster->Hang(task);
    if (kind == kCut) cluster->Cut(task, other);
  }
  void Mend(SimCluster* cluster) const {
    if (!cluster->IsAlive(task)) cluster->Start(task);
    if (kind == kHang) cluster->Resume(task);
    if (kind == kCut) cluster->Heal(task, other);
  }
  // The error says whom it is about, and that it is about a task.
  void CheckError(const Status& status) const {
    EXPECT_THAT(status.code(), AnyOf(Eq(absl::StatusCode::kUnavailable), Eq(absl::StatusCode::kAborted))) << status;
    std::vector<std::string> tasks = {task};
    if (!other.empty()) tasks.push_back(other);
    const bool named = std::any_of(tasks.begin(), tasks.end(), [&](const std::string& task) {
      return absl::StrContains(status.message(), SimCluster::Name(task)) ||
             absl::StrContains(status.message(), SimCluster::Address(task));
    });
    EXPECT_TRUE(named) << ToString() << " is not named: " << status;
  }
};

std::vector<Fault> AllFaults() {
  std::vector<Fault> faults;
  for (const Fault::Kind kind : {Fault::kKill, Fault::kRestart, Fault::kHang}) {
    for (const std::string task : {"ps0", "worker0", "worker1"}) faults.push_back({kind, task});
  }
  for (const auto& [a, b] :
       {std::pair("ps0", "worker0"), std::pair("ps0", "worker1"), std::pair("worker0", "worker1")}) {
    faults.push_back({Fault::kCut, a, b});
  }
  return faults;
}

// The cluster is whole again: new sessions work, nothing acknowledged is lost, nothing is left over.
void ExpectRecovery(SimCluster* cluster, Trainer* trainer, bool counter_is_lost) {
  if (trainer->client().has_session()) {
    const TicketPtr close = trainer->client().Close();
    EXPECT_TRUE(trainer->client().Wait(close, absl::Seconds(7)));
    EXPECT_THAT(close->status.code(), AnyOf(Eq(absl::StatusCode::kOk), Eq(absl::StatusCode::kAborted)))
        << close->status;
  }
  cluster->network().RunFor(absl::Seconds(150));
  if (!trainer->Expect(trainer->Create())) return;
  const TicketPtr read = trainer->client().Run({}, {"read:0"});
  ASSERT_TRUE(trainer->client().Wait(read, absl::Seconds(2)));
  if (counter_is_lost) {
    EXPECT_EQ(read->status.code(), absl::StatusCode::kFailedPrecondition) << read->status;
    EXPECT_THAT(std::string(read->status.message()), HasSubstr("counter"));
    trainer->Expect(trainer->Init());
  } else {
    EXPECT_EQ(read->status, absl::OkStatus());
    trainer->CheckCounter(read->Value("read:0"));
  }
  trainer->ExpectStep(5);
  trainer->Expect(trainer->client().Close());
  cluster->network().RunFor(absl::Seconds(1));
  EXPECT_THAT(cluster->Leftovers(), IsEmpty());
}

enum class Phase { kCreate, kFirstStep, kLaterStep, kSlowStep };
constexpr const char* kPhases[] = {"create", "first", "later", "slow"};

// Injects the fault with the k-th message of the phase. Returns false if the phase has fewer messages.
bool StrikeAt(Phase phase, const Fault& fault, int k, uint64_t seed) {
  SimCluster cluster(seed);
  Trainer trainer(&cluster);
  if (phase != Phase::kCreate && !trainer.Begin()) return false;
  if (phase == Phase::kLaterStep && !trainer.ExpectStep(2)) return false;
  int messages = 0;
  absl::Time struck = absl::InfiniteFuture();
  cluster.network().OnMessage([&](const net::SimMessage&) {
    if (++messages == k) {
      struck = cluster.network().clock()->Now();
      fault.Strike(&cluster);
    }
    return net::SimFate::kByChance;
  });
  const float x = k % 2 == 0 ? 1 : 5;
  const TicketPtr call = phase == Phase::kCreate     ? trainer.Create()
                         : phase == Phase::kSlowStep ? trainer.SlowStep()
                                                     : trainer.Step(x);
  // A step that waits for data ends by the fault only. What may take long is making a session: it waits for tasks to
  // come up.
  trainer.client().Wait(call, absl::Seconds(15));
  if (struck == absl::InfiniteFuture()) return false;
  cluster.network().OnMessage(nullptr);
  bool mended = false;
  if (!call->done && phase == Phase::kCreate) {
    mended = true;
    fault.Mend(&cluster);
    trainer.client().Wait(call, absl::Seconds(7));
    EXPECT_TRUE(call->done) << "the session is not made although the cluster is whole";
    if (call->done) {
      EXPECT_EQ(call->status, absl::OkStatus());
    }
  } else {
    EXPECT_TRUE(call->done) << "the call never ends";
    if (call->done) {
      EXPECT_LE(call->ended - struck, fault.IsSilent() ? absl::Seconds(7) : absl::Milliseconds(100)) << call->status;
    }
  }
  if (call->done && !call->status.ok()) fault.CheckError(call->status);
  if (call->done && call->status.ok() && phase != Phase::kCreate) trainer.CheckStep(*call, x);
  if (!mended) fault.Mend(&cluster);
  if (phase == Phase::kCreate) {
    // The session may know a task that is no more: then it says so, and a new one works.
    if (trainer.client().has_session()) {
      const TicketPtr init = trainer.Init();
      EXPECT_TRUE(trainer.client().Wait(init, absl::Seconds(7)));
      if (!init->status.ok()) fault.CheckError(init->status);
    }
    if (!trainer.client().has_session()) trainer.Expect(trainer.Create());
    trainer.client().Wait(trainer.client().Close());
    if (trainer.Expect(trainer.Create())) trainer.Expect(trainer.Init());
  }
  ExpectRecovery(&cluster, &trainer, phase != Phase::kCreate && fault.LosesStateOf("ps0"));
  PrintLog(&cluster);
  return true;
}

// Replayed by MILLRACE_FAULT="later hang ps0 17".
int Sweep(Phase phase, int most) {
  const char* const only = std::getenv("MILLRACE_FAULT");
  int runs = only == nullptr ? 0 : 1000000;
  for (const Fault& fault : AllFaults()) {
    for (int k = 1; k <= most; ++k) {
      const std::string name = absl::StrCat(kPhases[static_cast<int>(phase)], " ", fault.ToString(), " ", k);
      if (only != nullptr && name != only) continue;
      if (!StrikeAt(phase, fault, k, k)) break;
      ++runs;
      if (!::testing::Test::HasFailure()) continue;
      ADD_FAILURE() << "replay with MILLRACE_FAULT=\"" << name << '"';
      return runs;
    }
  }
  return runs;
}

TEST_P(ClusterFaults, AtEveryMessageOfASessionsCreation) { EXPECT_GT(Sweep(Phase::kCreate, 100), 12 * 8); }
TEST_P(ClusterFaults, AtEveryMessageOfAFirstStep) {
  EXPECT_GT(Sweep(Phase::kFirstStep, 100), 12 * (streams ? 20 : 30));
}
TEST_P(ClusterFaults, AtEveryMessageOfALaterStep) {
  EXPECT_GT(Sweep(Phase::kLaterStep, 100), 12 * (streams ? 20 : 30));
}
TEST_P(ClusterFaults, WhileAStepWaitsForData) { EXPECT_EQ(Sweep(Phase::kSlowStep, 30), 12 * 30); }

INSTANTIATE_TEST_SUITE_P(Tensors, ClusterFaults, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
