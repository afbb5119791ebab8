#include "millrace/cluster/step/pulled_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/cluster/worker/remote_worker.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kPsTask[] = "/job:ps/replica:0/task:0";

std::string KeyOf(const char* name) {
  return RendezvousKeyText("/job:ps/replica:0/task:0/device:CPU:0", 2, "/job:worker/replica:0/task:0/device:CPU:0",
                           absl::StrCat("edge_1_", name));
}

// Keeps what it is asked for, until the test answers.
class AskedWorker : public WorkerInterface {
 public:
  void GetStatus(const CallControl&, Done<pb::GetStatusResponse>) override {}
  void CreateWorkerSession(const CallControl&, pb::CreateWorkerSessionRequest, DoneStatus) override {}
  void DeleteWorkerSession(const CallControl&, const std::string&, DoneStatus) override {}
  void RegisterGraph(const CallControl&, pb::RegisterGraphRequest, Done<pb::RegisterGraphResponse>) override {}
  void DeregisterGraph(const CallControl&, pb::DeregisterGraphRequest, DoneStatus) override {}
  void RunGraph(const CallControl&, RunGraphCall, Done<RunGraphAnswer>) override {}
  void CleanupGraph(const CallControl&, int64_t, DoneStatus) override {}
  void CleanupAll(const CallControl&, std::vector<std::string>, DoneStatus) override {}
  void RecvTensor(const CallControl& control, int64_t, const std::string& key, Done<RendezvousItem> done) override {
    last = control;
    asked.push_back({key});
    one.push_back(std::move(done));
  }
  void RecvTensors(const CallControl& control, int64_t, const std::vector<std::string>& keys,
                   Done<std::vector<RendezvousItem>> done) override {
    last = control;
    asked.push_back(keys);
    many.push_back(std::move(done));
  }

  CallControl last;
  std::vector<std::vector<std::string>> asked;
  std::vector<Done<RendezvousItem>> one;
  std::vector<Done<std::vector<RendezvousItem>>> many;
};

class Keeper : public RefCounted {};

class PulledTensorsTest : public ::testing::Test {
 protected:
  void Pull(const char* name) {
    pulled_.Pull(keeper_, nullptr, &peer_, KeyOf(name),
                 [this](StatusOr<RendezvousItem> item) { got_.push_back(std::move(item)); });
  }

  const std::shared_ptr<AskedWorker> worker_ = std::make_shared<AskedWorker>();
  const Peer peer_{.id = {}, .name = kPsTask, .address = "ps:1", .worker = worker_};
  const RefPtr<RefCounted> keeper_ = MakeRef<Keeper>();
  WaitRegistry waits_;
  PulledTensors pulled_{7, &waits_};
  std::vector<StatusOr<RendezvousItem>> got_;
};

TEST_F(PulledTensorsTest, ATensorIsAwaitedFromTheCallToTheAnswer) {
  EXPECT_FALSE(pulled_.Awaits(kPsTask));
  Pull("a");
  Pull("b");
  EXPECT_EQ(worker_->asked, (std::vector<std::vector<std::string>>{{KeyOf("a")}, {KeyOf("b")}}));
  EXPECT_TRUE(pulled_.Awaits(kPsTask));
  EXPECT_FALSE(pulled_.Awaits("/job:ps/replica:0/task:1"));
  std::vector<Awaited> peers;
  pulled_.ListAwaited(0, &peers);
  ASSERT_EQ(peers.size(), 1u);  // each peer once
  EXPECT_EQ(peers[0].incarnation, 2u);
  std::vector<Wait> waits;
  pulled_.ListWaits(&waits);
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[1].tensor, "a");
  worker_->one[0](RendezvousItem{.tensor = Tensor::Scalar(1.f)});
  worker_->one[1](RendezvousItem{.tensor = Tensor::Scalar(2.f)});
  ASSERT_EQ(got_.size(), 2u);
  EXPECT_EQ(got_[1]->tensor.scalar<float>(), 2);
  EXPECT_FALSE(pulled_.Awaits(kPsTask));
}

TEST_F(PulledTensorsTest, AnErrorOfTheSendersStepIsHearsay) {
  Pull("a");
  Pull("b");
  worker_->one[0](Internal("its op failed"));
  worker_->one[1](Unavailable("it is gone"));
  EXPECT_TRUE(IsDerived(got_[0].status()));
  EXPECT_FALSE(IsDerived(got_[1].status()));
}

TEST_F(PulledTensorsTest, AGroupComesWithOneCall) {
  auto groups = std::make_shared<ReceiveGroups>();
  groups->groups.push_back({.task = kPsTask, .keys = {KeyOf("a"), KeyOf("b")}});
  size_t came = 0;
  pulled_.PullGroup(keeper_, nullptr, &peer_, groups, &groups->groups[0],
                    [&](StatusOr<std::vector<RendezvousItem>> items) { came = items->size(); });
  groups.reset();  // the call keeps them
  std::vector<Wait> waits;
  pulled_.ListWaits(&waits);
  EXPECT_EQ(waits.size(), 2u);
  ASSERT_EQ(worker_->many.size(), 1u);
  worker_->many[0](std::vector<RendezvousItem>(2));
  EXPECT_EQ(came, 2u);
  EXPECT_FALSE(pulled_.Awaits(kPsTask));
}

TEST_F(PulledTensorsTest, CallsAreTakenBackTogetherAndMadeForTheStepsThreads) {
  const RefPtr<ThreadHandover> handover = MakeRef<ThreadHandover>();
  pulled_.Use(nullptr, handover);
  Pull("a");
  EXPECT_EQ(worker_->last.handover.get(), handover.get());
  pulled_.Abort(Cancelled("the step has ended"));
  EXPECT_TRUE(worker_->last.cancellation->IsCancelled());
  EXPECT_THAT(std::string(worker_->last.cancellation->status().message()), HasSubstr("the step has ended"));
  worker_->one[0](Cancelled("the step has ended"));
}

TEST_F(PulledTensorsTest, EachTensorIsNotedUnlessTheStepHasEnded) {
  VirtualClock clock(absl::FromUnixSeconds(100));
  StepStatsCollector stats(&clock);
  pulled_.Use(&stats, nullptr);
  Pull("a");
  clock.Advance(absl::Seconds(1));
  worker_->one[0](RendezvousItem{.tensor = Tensor::Scalar(1.f)});
  pulled_.SetStats(nullptr);
  Pull("b");
  worker_->one[1](RendezvousItem{.tensor = Tensor::Scalar(1.f)});
  pb::StepStats proto;
  stats.ToProto(&proto);
  ASSERT_EQ(proto.dev_stats_size(), 1);
  EXPECT_EQ(proto.dev_stats(0).node_stats_size(), 1);
}

}  // namespace
}  // namespace millrace
