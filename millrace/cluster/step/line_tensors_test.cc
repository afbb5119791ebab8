#include "millrace/cluster/step/line_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/graph/partition.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// The worker's end of a line to the ps: "a" and "b" come, "g" and "h" go together.
class LineTensorsTest : public ::testing::Test {
 protected:
  LineTensorsTest() {
    auto edges = std::make_shared<StepEdges>();
    edges->tasks.push_back(
        {.name = "/job:ps/replica:0/task:0", .incarnation = 2, .arriving = {0, 1}, .leaving = {-1, -1, 2, 3}});
    const auto add = [&](StepEdge::Kind kind, int number, const char* name) {
      const char* const ps = "/job:ps/replica:0/task:0/device:CPU:0";
      const char* const worker = "/job:worker/replica:0/task:0/device:CPU:0";
      const bool comes = kind == StepEdge::Kind::kRecv;
      edges->edges.push_back(
          {.kind = kind,
           .number = number,
           .key = RendezvousKeyText(comes ? ps : worker, 2, comes ? worker : ps, absl::StrCat("edge_1_", name))});
    };
    add(StepEdge::Kind::kRecv, 0, "a");
    add(StepEdge::Kind::kRecv, 1, "b");
    add(StepEdge::Kind::kSend, 2, "g");
    add(StepEdge::Kind::kSend, 3, "h");
    edges->edges[2].group = edges->edges[3].group = 0;
    edges->groups = {{2, 3}};
    edges_ = edges;
    lines_.UseEdges(edges_);
    lines_.OpenLine(0, /*answers=*/false, /*traced=*/false);
    lines_.SetLine(0, {.outgoing = call_});
  }
  void Recv(int slot) {
    Rendezvous::Done done = [this](StatusOr<RendezvousItem> item) { got_.push_back(std::move(item)); };
    EXPECT_TRUE(lines_.RecvSlot(slot, edges_->edges[slot].key, &done));
  }
  StatusOr<bool> Send(int slot, RendezvousItem item) { return lines_.SendSlot(slot, edges_->edges[slot].key, &item); }
  Status Arrive(int number, float value) {
    SteppedTensors tensors;
    tensors.push_back({.number = number, .item = {.tensor = Tensor::Scalar(value)}});
    return lines_.Arrive(0, std::move(tensors));
  }

  class FakeCall : public net::OutgoingStream {
   public:
    void Cancel() override {}
    void Send(net::Bytes message) override { sent.push_back(std::move(message)); }
    std::vector<net::Bytes> sent;
  };

  WaitRegistry waits_;
  std::shared_ptr<const StepEdges> edges_;
  RefPtr<FakeCall> call_ = MakeRef<FakeCall>();
  std::vector<StatusOr<RendezvousItem>> got_;
  LineTensors lines_{7, &waits_};
};

TEST_F(LineTensorsTest, ATensorMeetsItsReceiverInEitherOrder) {
  Recv(0);
  EXPECT_TRUE(lines_.Awaits("/job:ps/replica:0/task:0"));
  EXPECT_EQ(Arrive(0, 1), absl::OkStatus());
  EXPECT_EQ(Arrive(1, 2), absl::OkStatus());
  Recv(1);
  ASSERT_EQ(got_.size(), 2u);
  EXPECT_EQ(got_[0]->tensor.scalar<float>(), 1);
  EXPECT_EQ(got_[1]->tensor.scalar<float>(), 2);
  EXPECT_FALSE(lines_.Awaits("/job:ps/replica:0/task:0"));
}

TEST_F(LineTensorsTest, TensorsOfOneMessageArrivedAtOneTime) {
  VirtualClock clock(absl::FromUnixSeconds(100));
  WaitRegistry waits(&clock);
  StepStatsCollector stats(&clock);
  LineTensors lines(7, &waits);
  lines.SetStats(&stats);
  lines.UseEdges(edges_);
  lines.OpenLine(0, /*answers=*/false, /*traced=*/true);
  for (int slot = 0; slot < 2; ++slot) {
    // What each sets off takes a while.
    Rendezvous::Done done = [&](StatusOr<RendezvousItem>) { clock.Advance(absl::Seconds(10)); };
    ASSERT_TRUE(lines.RecvSlot(slot, edges_->edges[slot].key, &done));
  }
  SteppedTensors tensors;
  for (int number = 0; number < 2; ++number)
    tensors.push_back({.number = number, .item = {.tensor = Tensor::Scalar(1.f), .sent_micros = 99'000'000}});
  ASSERT_EQ(lines.Arrive(0, std::move(tensors)), absl::OkStatus());
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(120));
  pb::StepStats proto;
  stats.ToProto(&proto);
  ASSERT_EQ(proto.dev_stats_size(), 1);
  ASSERT_EQ(proto.dev_stats(0).node_stats_size(), 2);
  for (const pb::NodeExecStats& arrival : proto.dev_stats(0).node_stats())
    EXPECT_EQ(arrival.all_start_micros(), 100'000'000) << arrival.timeline_label();
}

TEST_F(LineTensorsTest, WhatGoesTogetherLeavesInOneMessage) {
  EXPECT_TRUE(Send(3, {.tensor = Tensor::Scalar(4.f)}).value());
  EXPECT_EQ(call_->sent.size(), 0u);
  EXPECT_TRUE(Send(2, {.tensor = {}, .is_dead = true}).value());
  ASSERT_EQ(call_->sent.size(), 1u);
  const SteppedTensors tensors = DecodeTensors(call_->sent[0], Allocator::Heap()).value();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].number, 2);
  EXPECT_TRUE(tensors[0].item.is_dead);
  EXPECT_EQ(tensors[1].item.tensor.scalar<float>(), 4);
}

TEST_F(LineTensorsTest, KeysOfLoopsTravelWhole) {
  std::string key = edges_->edges[0].key;
  key.replace(key.rfind(';'), std::string::npos, ";5:1");
  Rendezvous::Done done = [this](StatusOr<RendezvousItem> item) { got_.push_back(std::move(item)); };
  ASSERT_TRUE(lines_.Recv(key, "/job:ps/replica:0/task:0", &done));
  std::vector<Wait> waits;
  lines_.ListWaits(&waits);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].tensor, "a");
  SteppedTensors tensors;
  tensors.push_back({.key = key, .item = {.tensor = Tensor::Scalar(6.f)}});
  EXPECT_EQ(lines_.Arrive(0, std::move(tensors)), absl::OkStatus());
  ASSERT_EQ(got_.size(), 1u);
  EXPECT_EQ(got_[0]->tensor.scalar<float>(), 6);
  std::string out = edges_->edges[2].key;
  out.replace(out.rfind(';'), std::string::npos, ";5:1");
  RendezvousItem leaves{.tensor = Tensor::Scalar(8.f)};
  EXPECT_TRUE(lines_.Send(out, &leaves).value());
  ASSERT_EQ(call_->sent.size(), 1u);
  EXPECT_EQ(DecodeTensors(call_->sent[0], Allocator::Heap())->at(0).key, out);
}

TEST_F(LineTensorsTest, WhatAPeerDidNotSendBeforeItsEndIsNamed) {
  Recv(0);
  lines_.EndLine(0);
  Recv(1);
  ASSERT_EQ(got_.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got_[i].status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(got_[i].status().message()),
                HasSubstr(absl::StrCat("tensor ", i == 0 ? "a" : "b", " was to come from /job:ps/replica:0/task:0")));
  }
}

TEST_F(LineTensorsTest, WhatIsNoneOfOursOrComesTwiceIsRefused) {
  EXPECT_EQ(Arrive(2, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Arrive(1000, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Arrive(0, 1), absl::OkStatus());
  EXPECT_EQ(Arrive(0, 1).code(), absl::StatusCode::kInvalidArgument);
  for (const char* key :
       {"x", "/job:w/replica:0/task:0/device:CPU:0;0000000000000002;/job:ps/replica:0/task:0/device:CPU:0;t;1:1"}) {
    SteppedTensors tensors;
    tensors.push_back({.key = key, .item = {.tensor = Tensor::Scalar(1.f)}});
    EXPECT_EQ(lines_.Arrive(0, std::move(tensors)).code(), absl::StatusCode::kInvalidArgument) << key;
  }
}

TEST_F(LineTensorsTest, AnAbortEndsItsWaitsAndWhatComesLaterIsDropped) {
  Recv(0);
  lines_.Abort(Unavailable("the ps is gone"));
  Recv(1);
  ASSERT_EQ(got_.size(), 2u);
  EXPECT_TRUE(absl::IsUnavailable(got_[0].status()) && absl::IsUnavailable(got_[1].status()));
  EXPECT_FALSE(lines_.Awaits("/job:ps/replica:0/task:0"));
  EXPECT_EQ(Arrive(0, 1), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(Send(2, {.tensor = Tensor::Scalar(1.f)}).status()));
}

TEST_F(LineTensorsTest, WhatNoLineLeadsToIsLeftAlone) {
  LineTensors none(7, &waits_);
  RendezvousItem item{.tensor = Tensor::Scalar(3.f)};
  bool called = false;
  Rendezvous::Done done = [&](StatusOr<RendezvousItem>) { called = true; };
  EXPECT_FALSE(none.SendSlot(2, edges_->edges[2].key, &item).value());
  EXPECT_FALSE(none.Send(edges_->edges[2].key, &item).value());
  EXPECT_FALSE(none.RecvSlot(0, edges_->edges[0].key, &done));
  EXPECT_FALSE(none.Recv(edges_->edges[0].key, "/job:ps/replica:0/task:0", &done));
  // Nor does one that sends take what arrives, or the other way round; nor does a task that there is no line to.
  EXPECT_FALSE(Send(0, item).value());
  EXPECT_FALSE(lines_.RecvSlot(2, edges_->edges[2].key, &done));
  EXPECT_FALSE(lines_.Recv(edges_->edges[0].key, "/job:ps/replica:0/task:1", &done));
  EXPECT_TRUE(lines_.LeadsTo("/job:ps/replica:0/task:0"));
  EXPECT_FALSE(lines_.LeadsTo("/job:ps/replica:0/task:1"));
  EXPECT_TRUE(item.tensor.IsInitialized() && done != nullptr && !called);
}

TEST_F(LineTensorsTest, ItSaysWhomItWaitsFor) {
  EXPECT_FALSE(lines_.Awaits("/job:ps/replica:0/task:0"));
  Recv(1);
  EXPECT_TRUE(lines_.Awaits("/job:ps/replica:0/task:0"));
  EXPECT_FALSE(lines_.Awaits("/job:worker/replica:0/task:0"));
  std::vector<Wait> waits;
  lines_.ListWaits(&waits);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].tensor, "b");
  EXPECT_EQ(waits[0].peer, "/job:ps/replica:0/task:0");
  EXPECT_EQ(Arrive(1, 1), absl::OkStatus());
  EXPECT_FALSE(lines_.Awaits("/job:ps/replica:0/task:0"));
}

}  // namespace
}  // namespace millrace
