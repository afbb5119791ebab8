#include "millrace/cluster/step_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/graph/partition.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kKey[] =
    "/job:ps/replica:0/task:0/device:CPU:0;56d93a2aa9cece36;/job:worker/replica:0/task:0/device:CPU:0;edge_4_w/read;18186195969791715286:2";

TEST(ParsedKeyTest, GivesTheParts) {
  const ParsedKey key = ParsedKey::Parse(kKey).value();
  EXPECT_EQ(key.send_task, "/job:ps/replica:0/task:0");
  EXPECT_EQ(key.recv_task, "/job:worker/replica:0/task:0");
  EXPECT_EQ(key.tensor, "edge_4_w/read");
  EXPECT_EQ(key.incarnation, 0x56d93a2aa9cece36u);
}

TEST(ParsedKeyTest, SaysWhatIsNoKey) {
  const std::string good = kKey;
  std::string not_hexadecimal = good;
  not_hexadecimal[good.find("56d9")] = 'x';
  for (const std::string& bad : {std::string(), good + ";", good.substr(1, good.size() / 2), std::string("a;b;c;d;e"),
                                 not_hexadecimal, good + "x", good.substr(0, good.rfind(':'))}) {
    const StatusOr<ParsedKey> key = ParsedKey::Parse(bad);
    ASSERT_FALSE(key.ok()) << bad;
    EXPECT_TRUE(absl::IsInvalidArgument(key.status()));
    EXPECT_THAT(std::string(key.status().message()), HasSubstr("rendezvous key"));
  }
}

TEST(StepRendezvousTest, ListsWhatTheClientHasNotGiven) {
  WaitRegistry waits;
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  const std::string key = RendezvousKeyText("/job:w/replica:0/task:0/device:CPU:0", 1, "/job:w/replica:0/task:0/device:CPU:0", "x:0");
  StatusOr<RendezvousItem> got = Internal("nothing");
  step->Recv(key, [&](StatusOr<RendezvousItem> item) { got = std::move(item); });
  ASSERT_EQ(waits.List().size(), 1u);
  EXPECT_EQ(waits.List()[0].node, "x:0");
  EXPECT_TRUE(step->HasWaiters());
  ASSERT_TRUE(step->Send(key, {Tensor::Scalar<float>(3), false}).ok());
  EXPECT_EQ(got->tensor.scalar<float>(), 3);
  EXPECT_TRUE(waits.List().empty());
  EXPECT_TRUE(step->IsEmpty());
}

TEST(StepRendezvousTest, AnAbortEndsWaitsAndIsWhatLaterOnesGet) {
  WaitRegistry waits;
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  Status first, second;
  step->RecvLocal(kKey, [&](StatusOr<RendezvousItem> item) { first = item.status(); });
  step->Abort(Unavailable("the ps is gone"));
  step->RecvLocal(kKey, [&](StatusOr<RendezvousItem> item) { second = item.status(); });
  EXPECT_THAT(std::string(first.message()), HasSubstr("the ps is gone"));
  EXPECT_THAT(std::string(second.message()), HasSubstr("the ps is gone"));
  EXPECT_TRUE(absl::IsUnavailable(first) && absl::IsUnavailable(second));
}

// The worker's end of a line to the ps: "a" and "b" come, "g" and "h" go together.
class LineTest : public ::testing::Test {
 protected:
  LineTest() {
    auto edges = std::make_shared<StepEdges>();
    edges->tasks.push_back({.name = "/job:ps/replica:0/task:0", .incarnation = 2, .arriving = {0, 1}, .leaving = {-1, -1, 2, 3}});
    const auto add = [&](StepEdge::Kind kind, int number, const char* name) {
      const char* const ps = "/job:ps/replica:0/task:0/device:CPU:0";
      const char* const worker = "/job:worker/replica:0/task:0/device:CPU:0";
      const bool comes = kind == StepEdge::Kind::kRecv;
      edges->edges.push_back({.kind = kind, .number = number, .key = RendezvousKeyText(comes ? ps : worker, 2, comes ? worker : ps, absl::StrCat("edge_1_", name))});
    };
    add(StepEdge::Kind::kRecv, 0, "a");
    add(StepEdge::Kind::kRecv, 1, "b");
    add(StepEdge::Kind::kSend, 2, "g");
    add(StepEdge::Kind::kSend, 3, "h");
    edges->edges[2].group = edges->edges[3].group = 0;
    edges->groups = {{2, 3}};
    edges_ = edges;
    step_->UseEdges(edges_);
    step_->OpenLine(0, /*answers=*/false, /*traced=*/false);
    step_->SetLine(0, {.outgoing = call_});
  }
  void Recv(int slot) {
    step_->RecvSlot(slot, edges_->edges[slot].key, [this](StatusOr<RendezvousItem> item) { got_.push_back(std::move(item)); });
  }
  Status Arrive(int number, float value) {
    SteppedTensors tensors;
    tensors.push_back({.number = number, .item = {.tensor = Tensor::Scalar(value)}});
    return step_->Arrive(0, std::move(tensors));
  }

  class FakeCall : public net::OutgoingCall {
   public:
    void Cancel() override {}
    void Send(net::Bytes message) override { sent.push_back(std::move(message)); }
    std::vector<net::Bytes> sent;
  };

  WaitRegistry waits_;
  std::shared_ptr<const StepEdges> edges_;
  RefPtr<FakeCall> call_ = MakeRef<FakeCall>();
  std::vector<StatusOr<RendezvousItem>> got_;
  RefPtr<StepRendezvous> step_ = MakeRef<StepRendezvous>(7, &waits_);
};

TEST_F(LineTest, ATensorMeetsItsReceiverInEitherOrder) {
  Recv(0);
  EXPECT_TRUE(step_->HasWaiters());
  EXPECT_EQ(Arrive(0, 1), absl::OkStatus());
  EXPECT_EQ(Arrive(1, 2), absl::OkStatus());
  Recv(1);
  ASSERT_EQ(got_.size(), 2u);
  EXPECT_EQ(got_[0]->tensor.scalar<float>(), 1);
  EXPECT_EQ(got_[1]->tensor.scalar<float>(), 2);
  EXPECT_FALSE(step_->HasWaiters());
}

TEST_F(LineTest, TensorsOfOneMessageArrivedAtOneTime) {
  VirtualClock clock(absl::FromUnixSeconds(100));
  WaitRegistry waits(&clock);
  StepStatsCollector stats(&clock);
  const RefPtr<StepRendezvous> step = MakeRef<StepRendezvous>(7, &waits);
  step->Attach(nullptr, &stats);
  step->UseEdges(edges_);
  step->OpenLine(0, /*answers=*/false, /*traced=*/true);
  for (int slot = 0; slot < 2; ++slot) {
    // What each sets off takes a while.
    step->RecvSlot(slot, edges_->edges[slot].key, [&](StatusOr<RendezvousItem>) { clock.Advance(absl::Seconds(10)); });
  }
  SteppedTensors tensors;
  for (int number = 0; number < 2; ++number) tensors.push_back({.number = number, .item = {.tensor = Tensor::Scalar(1.f), .sent_micros = 99'000'000}});
  ASSERT_EQ(step->Arrive(0, std::move(tensors)), absl::OkStatus());
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(120));
  pb::StepStats proto;
  stats.ToProto(&proto);
  ASSERT_EQ(proto.dev_stats_size(), 1);
  ASSERT_EQ(proto.dev_stats(0).node_stats_size(), 2);
  for (const pb::NodeExecStats& arrival : proto.dev_stats(0).node_stats()) EXPECT_EQ(arrival.all_start_micros(), 100'000'000) << arrival.timeline_label();
}

TEST_F(LineTest, WhatGoesTogetherLeavesInOneMessage) {
  EXPECT_EQ(step_->SendSlot(3, edges_->edges[3].key, {.tensor = Tensor::Scalar(4.f)}), absl::OkStatus());
  EXPECT_EQ(call_->sent.size(), 0u);
  EXPECT_EQ(step_->SendSlot(2, edges_->edges[2].key, {.tensor = {}, .is_dead = true}), absl::OkStatus());
  ASSERT_EQ(call_->sent.size(), 1u);
  const SteppedTensors tensors = DecodeTensors(call_->sent[0], Allocator::Heap()).value();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].number, 2);
  EXPECT_TRUE(tensors[0].item.is_dead);
  EXPECT_EQ(tensors[1].item.tensor.scalar<float>(), 4);
}

TEST_F(LineTest, KeysOfLoopsTravelWhole) {
  std::string key = edges_->edges[0].key;
  key.replace(key.rfind(';'), std::string::npos, ";5:1");
  step_->Recv(key, [this](StatusOr<RendezvousItem> item) { got_.push_back(std::move(item)); });
  std::vector<Wait> waits;
  step_->ListWaits(&waits);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].tensor, "a");
  SteppedTensors tensors;
  tensors.push_back({.key = key, .item = {.tensor = Tensor::Scalar(6.f)}});
  EXPECT_EQ(step_->Arrive(0, std::move(tensors)), absl::OkStatus());
  ASSERT_EQ(got_.size(), 1u);
  EXPECT_EQ(got_[0]->tensor.scalar<float>(), 6);
  std::string out = edges_->edges[2].key;
  out.replace(out.rfind(';'), std::string::npos, ";5:1");
  EXPECT_EQ(step_->Send(out, {.tensor = Tensor::Scalar(8.f)}), absl::OkStatus());
  ASSERT_EQ(call_->sent.size(), 1u);
  EXPECT_EQ(DecodeTensors(call_->sent[0], Allocator::Heap())->at(0).key, out);
}

TEST_F(LineTest, WhatAPeerDidNotSendBeforeItsEndIsNamed) {
  Recv(0);
  step_->EndLine(0);
  Recv(1);
  ASSERT_EQ(got_.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got_[i].status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(got_[i].status().message()), HasSubstr(absl::StrCat("tensor ", i == 0 ? "a" : "b", " was to come from /job:ps/replica:0/task:0")));
  }
}

TEST_F(LineTest, WhatIsNoneOfOursOrComesTwiceIsRefused) {
  EXPECT_EQ(Arrive(2, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Arrive(1000, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Arrive(0, 1), absl::OkStatus());
  EXPECT_EQ(Arrive(0, 1).code(), absl::StatusCode::kInvalidArgument);
  for (const char* key : {"x", "/job:w/replica:0/task:0/device:CPU:0;0000000000000002;/job:ps/replica:0/task:0/device:CPU:0;t;1:1"}) {
    SteppedTensors tensors;
    tensors.push_back({.key = key, .item = {.tensor = Tensor::Scalar(1.f)}});
    EXPECT_EQ(step_->Arrive(0, std::move(tensors)).code(), absl::StatusCode::kInvalidArgument) << key;
  }
}

TEST_F(LineTest, AnAbortEndsItsWaitsAndWhatComesLaterIsDropped) {
  Recv(0);
  step_->Abort(Unavailable("the ps is gone"));
  Recv(1);
  ASSERT_EQ(got_.size(), 2u);
  EXPECT_TRUE(absl::IsUnavailable(got_[0].status()) && absl::IsUnavailable(got_[1].status()));
  EXPECT_FALSE(step_->HasWaiters());
  EXPECT_EQ(Arrive(0, 1), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(step_->SendSlot(2, edges_->edges[2].key, {.tensor = Tensor::Scalar(1.f)})));
}

}  // namespace
}  // namespace millrace
