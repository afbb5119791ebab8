#include "millrace/cluster/watch/liveness.h"

#include <map>

#include "gtest/gtest.h"
#include "millrace/cluster/sim/manual_timers_testing.h"

namespace millrace {
namespace {

constexpr uint64_t kOldProcess = 17, kNewProcess = 18;

// Answers pings as the test says.
class PingedWorker : public WorkerInterface {
 public:
  explicit PingedWorker(StatusOr<uint64_t> incarnation) : incarnation_(std::move(incarnation)) {}
  void GetStatus(const CallControl&, Done<pb::GetStatusResponse> done) override {
    ++pings;
    if (clock != nullptr) clock->Advance(takes);
    if (!incarnation_.ok()) return done(incarnation_.status());
    pb::GetStatusResponse response;
    response.add_device_attributes()->set_incarnation(*incarnation_);
    done(std::move(response));
  }
  void CreateWorkerSession(const CallControl&, pb::CreateWorkerSessionRequest, DoneStatus) override {}
  void DeleteWorkerSession(const CallControl&, const std::string&, DoneStatus) override {}
  void RegisterGraph(const CallControl&, pb::RegisterGraphRequest, Done<pb::RegisterGraphResponse>) override {}
  void DeregisterGraph(const CallControl&, pb::DeregisterGraphRequest, DoneStatus) override {}
  void RunGraph(const CallControl&, RunGraphCall, Done<RunGraphAnswer>) override {}
  void CleanupGraph(const CallControl&, int64_t, DoneStatus) override {}
  void CleanupAll(const CallControl&, std::vector<std::string>, DoneStatus) override {}
  void RecvTensor(const CallControl&, int64_t, const std::string&, Done<RendezvousItem>) override {}

  int pings = 0;
  VirtualClock* clock = nullptr;
  absl::Duration takes;

 private:
  const StatusOr<uint64_t> incarnation_;
};

// Waits for peers until they are lost.
class WaitingClient : public LivenessClient {
 public:
  bool ListAwaited(std::vector<Awaited>* peers) override {
    peers->insert(peers->end(), awaited.begin(), awaited.end());
    return true;
  }
  void OnPeerLost(const Awaited& peer, const Status& why) override {
    std::erase_if(awaited, [&](const Awaited& waiting) {
      if (!EndsWait(peer, why, waiting)) return false;
      lost.emplace(waiting.address, why);
      return true;
    });
  }
  std::vector<Awaited> awaited;
  std::multimap<std::string, Status> lost;
};

class LivenessTest : public ::testing::Test {
 protected:
  std::shared_ptr<PingedWorker> Await(const std::string& address, uint64_t incarnation, StatusOr<uint64_t> answer) {
    auto worker = std::make_shared<PingedWorker>(std::move(answer));
    client_->awaited.push_back({.task = kTask, .address = address, .worker = worker, .incarnation = incarnation});
    return worker;
  }
  void Tick() {
    monitor_->Poke();
    timers_.Advance(absl::Seconds(1));
  }

  static constexpr char kTask[] = "/job:ps/replica:0/task:0";
  ManualTimers timers_;
  VirtualClock clock_;
  const std::shared_ptr<WaitingClient> client_ = std::make_shared<WaitingClient>();
  const std::shared_ptr<LivenessMonitor> monitor_ =
      LivenessMonitor::Make({.timers = &timers_, .clock = &clock_}, client_);
};

TEST_F(LivenessTest, ALostTaskOfOneClusterEndsNoWaitForItsNamesakeOfAnother) {
  Await("one:1", kOldProcess, Unavailable("refused"));
  const auto namesake = Await("other:1", kOldProcess, kOldProcess);
  Tick();
  EXPECT_EQ(namesake->pings, 1);
  ASSERT_EQ(client_->awaited.size(), 1u);
  EXPECT_EQ(client_->awaited[0].address, "other:1");
  EXPECT_EQ(client_->lost.size(), 1u);
  EXPECT_EQ(client_->lost.count("one:1"), 1u);
}

TEST_F(LivenessTest, ARestartEndsTheWaitsForTheFormerProcessOnly) {
  // The step that began after the restart comes first in the order of incarnations, and must not hide the other one.
  Await("one:1", kOldProcess, kOldProcess);
  const auto former = Await("one:1", kNewProcess, kOldProcess);
  Tick();
  EXPECT_EQ(former->pings, 1);
  ASSERT_EQ(client_->awaited.size(), 1u);
  EXPECT_EQ(client_->awaited[0].incarnation, kOldProcess);
  ASSERT_EQ(client_->lost.size(), 1u);
  EXPECT_TRUE(absl::IsAborted(client_->lost.begin()->second)) << client_->lost.begin()->second;
}

TEST_F(LivenessTest, ATaskThatCannotBeReachedEndsAllWaitsForItsAddress) {
  Await("one:1", kOldProcess, Unavailable("refused"));
  Await("one:1", kNewProcess, Unavailable("refused"));
  Tick();
  EXPECT_TRUE(client_->awaited.empty());
  EXPECT_EQ(client_->lost.size(), 2u);
}

TEST_F(LivenessTest, ASilentTaskIsLostUnlessThisProcessWasStoppedItself) {
  const auto silent = Await("one:1", kOldProcess, DeadlineExceeded("no answer"));
  silent->clock = &clock_;
  silent->takes = absl::Minutes(3);  // the time-out of 5 s went off when the process went on
  Tick();
  EXPECT_EQ(client_->lost.size(), 0u);
  silent->takes = absl::Seconds(5);
  timers_.Advance(absl::Seconds(1));
  EXPECT_EQ(silent->pings, 2);
  ASSERT_EQ(client_->lost.size(), 1u);
  EXPECT_NE(client_->lost.begin()->second.message().find("has not answered for 5s"), std::string::npos);
}

}  // namespace
}  // namespace millrace
