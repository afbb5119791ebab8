#include "millrace/graph/partition.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr char kPs0[] = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr char kPs1[] = "/job:ps/replica:0/task:1/device:CPU:0";
constexpr char kPs1Gpu[] = "/job:ps/replica:0/task:1/device:GPU:0";

class PartitionTest : public ::testing::Test {
 protected:
  PartitionTest() : graph_(std::make_unique<Graph>()), b_(graph_.get()) {
    options_.incarnations = {{kWorker, 0xfedcba9876543210}, {kPs0, 0x11}, {kPs1, 0x12}, {kPs1Gpu, 0x13}};
    options_.home_task = "/job:worker/replica:0/task:0";
  }

  Endpoint On(const char* device, Endpoint e) {
    if (e) graph_->SetAssignedDevice(e.node, device);
    return e;
  }
  Endpoint X(const char* device, absl::string_view name = "x") {
    return On(device, b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, name));
  }
  Endpoint Op(const char* device, const char* op, std::initializer_list<Endpoint> inputs, absl::string_view name) {
    return On(device, b_.Op(op, inputs, {}, name));
  }

  // By the last of the task's name: "worker0", "ps1".
  void Partition() {
    ASSERT_TRUE(b_.ok()) << b_.status();
    auto parts = PartitionGraph(std::move(graph_), options_);
    ASSERT_TRUE(parts.ok()) << parts.status();
    parts_ = *std::move(parts);
  }
  Status Fail() { return PartitionGraph(std::move(graph_), options_).status(); }
  Part* PartOf(const char* device) {
    for (Part& part : parts_) {
      if (absl::StartsWith(device, part.task)) return &part;
    }
    return nullptr;
  }
  std::vector<Node*> NodesOf(const char* device, absl::string_view type) {
    std::vector<Node*> found;
    if (PartOf(device) == nullptr) return found;
    for (Node* node : PartOf(device)->graph->nodes()) {
      if (node->is_type(type)) found.push_back(node);
    }
    return found;
  }
  Node* NodeOf(const char* device, absl::string_view name) {
    Part* part = PartOf(device);
    return part == nullptr ? nullptr : part->graph->FindNode(name);
  }

  std::unique_ptr<Graph> graph_;
  GraphBuilder b_;
  PartitionOptions options_;
  std::vector<Part> parts_;
};

std::string Str(const Node* node, const char* attr) { return node->AttrOr<std::string>(attr, ""); }

TEST_F(PartitionTest, OneTaskIsOnePart) {
  Op(kWorker, "Neg", {X(kWorker)}, "y");
  Partition();
  ASSERT_EQ(parts_.size(), 1u);
  EXPECT_EQ(GraphToString(*parts_[0].graph), "x = Placeholder()\ny = Neg(x)\n");
  EXPECT_THAT(parts_[0].senders, IsEmpty());
}

TEST_F(PartitionTest, ATensorIsSentOnceToEachDeviceThatUsesIt) {
  const Endpoint x = X(kWorker);
  Op(kPs0, "Neg", {x}, "a");
  Op(kPs0, "Exp", {x}, "b");
  Op(kPs1, "Exp", {x}, "c");
  Partition();
  ASSERT_EQ(parts_.size(), 3u);
  EXPECT_EQ(NodesOf(kWorker, "_Send").size(), 2u);
  const std::vector<Node*> recvs = NodesOf(kPs0, "_Recv");
  ASSERT_EQ(recvs.size(), 1u);
  EXPECT_EQ(NodeOf(kPs0, "a")->input(0), recvs[0]->output(0));
  EXPECT_EQ(NodeOf(kPs0, "b")->input(0), recvs[0]->output(0));
  EXPECT_THAT(PartOf(kPs0)->senders, ElementsAre("/job:worker/replica:0/task:0"));
  EXPECT_THAT(PartOf(kWorker)->senders, IsEmpty());
}

TEST_F(PartitionTest, BothEndsOfAnEdgeAgreeOnItsKey) {
  Op(kPs0, "Neg", {X(kWorker)}, "y");
  Partition();
  const Node* send = NodesOf(kWorker, "_Send")[0];
  const Node* recv = NodesOf(kPs0, "_Recv")[0];
  for (const char* attr : {"tensor_name", "send_device", "recv_device"}) EXPECT_EQ(Str(send, attr), Str(recv, attr));
  EXPECT_EQ(Str(send, "send_device"), kWorker);
  EXPECT_EQ(Str(send, "recv_device"), kPs0);
  EXPECT_THAT(Str(send, "tensor_name"), testing::MatchesRegex("edge_[0-9]+_x"));
  EXPECT_EQ(static_cast<uint64_t>(send->AttrOr<int64_t>("send_device_incarnation", 0)), 0xfedcba9876543210);
  EXPECT_EQ(recv->AttrOr<int64_t>("send_device_incarnation", 0), send->AttrOr<int64_t>("send_device_incarnation", 0));
  EXPECT_THAT(send->name(), testing::MatchesRegex("x_S[0-9]+"));
  EXPECT_NE(send->name(), recv->name());
  EXPECT_THAT(recv->origins(), ElementsAre("x"));
  EXPECT_EQ(send->requested_device(), kWorker);
  EXPECT_EQ(RendezvousKeyText("a", 0x1f, "b", "t:0", 3, 4), "a;000000000000001f;b;t:0;3:4");
}

TEST_F(PartitionTest, WhatAnAcceleratorTakesIsReceivedByItsHost) {
  const Endpoint x = X(kWorker);
  Op(kPs1Gpu, "Neg", {x}, "on_gpu");
  Op(kPs1, "Neg", {x}, "on_cpu");
  Partition();
  ASSERT_EQ(parts_.size(), 2u);
  ASSERT_EQ(NodesOf(kPs1, "_Recv").size(), 1u);
  EXPECT_EQ(NodesOf(kPs1, "_Recv")[0]->assigned_device(), kPs1);
}

TEST_F(PartitionTest, AControlEdgeIsAnEmptyTensorToWaitFor) {
  const Endpoint x = X(kPs0);
  Node* a = On(kWorker, b_.Op("NoOp", std::vector<Endpoint>{}, {}, "a")).node;
  b_.control_inputs = {x.node};
  a = b_.AddNode("NoOp", {}, {}, "a1");
  Node* second = b_.AddNode("NoOp", {}, {}, "a2");
  graph_->SetAssignedDevice(a, kWorker);
  graph_->SetAssignedDevice(second, kWorker);
  Partition();
  const std::vector<Node*> sends = NodesOf(kPs0, "_Send");
  ASSERT_EQ(sends.size(), 1u);
  Node* empty = sends[0]->input(0).node;
  EXPECT_TRUE(empty->is_type("Const"));
  EXPECT_THAT(empty->name(), HasSubstr("x/ctrl"));
  EXPECT_THAT(empty->control_inputs(), ElementsAre(NodeOf(kPs0, "x")));
  ASSERT_EQ(NodesOf(kWorker, "_Recv").size(), 1u);
  Node* wait = NodesOf(kWorker, "Identity")[0];
  EXPECT_EQ(wait->input(0).node, NodesOf(kWorker, "_Recv")[0]);
  EXPECT_THAT(NodeOf(kWorker, "a1")->control_inputs(), ElementsAre(wait));
  EXPECT_THAT(NodeOf(kWorker, "a2")->control_inputs(), ElementsAre(wait));
}

TEST_F(PartitionTest, AControlEdgeLeansOnDataThatComesAnyway) {
  const Endpoint x = X(kPs0);
  Op(kWorker, "Neg", {x}, "y");
  b_.control_inputs = {x.node};
  graph_->SetAssignedDevice(b_.AddNode("NoOp", {}, {}, "after"), kWorker);
  Partition();
  EXPECT_EQ(NodesOf(kPs0, "_Send").size(), 1u);
  EXPECT_THAT(NodeOf(kWorker, "after")->control_inputs(), ElementsAre(NodesOf(kWorker, "_Recv")[0]));
}

TEST_F(PartitionTest, ManyControlEdgesFromOneTaskAreOneMessage) {
  std::vector<Node*> before;
  for (int i = 0; i < 1000; ++i) before.push_back(X(i % 2 == 0 ? kPs0 : kPs1, absl::StrCat("x", i)).node);
  b_.control_inputs = before;
  graph_->SetAssignedDevice(b_.AddNode("NoOp", {}, {}, "all"), kWorker);
  Partition();
  EXPECT_EQ(NodesOf(kPs0, "_Send").size(), 1u);
  EXPECT_EQ(NodesOf(kPs1, "_Send").size(), 1u);
  EXPECT_EQ(NodesOf(kPs0, "NoOp")[0]->control_inputs().size(), 500u);
  EXPECT_EQ(NodeOf(kWorker, "all")->control_inputs().size(), 2u);
}

TEST_F(PartitionTest, SmallConstantsAreCopiedAndLargeOnesSent) {
  const Endpoint small = On(kPs0, b_.Const(Tensor::Scalar(1.0f), "small"));
  const Endpoint large = On(kPs0, b_.Const(*Tensor::Make(DType::kInt8, {100000}), "large"));
  b_.control_inputs = {small.node};
  const Endpoint ordered = On(kPs0, b_.Const(Tensor::Scalar(1.0f), "ordered"));
  b_.control_inputs.clear();
  Op(kWorker, "Neg", {small}, "a");
  Op(kWorker, "Neg", {small}, "a2");
  Op(kWorker, "Neg", {large}, "b");
  Op(kWorker, "Neg", {ordered}, "c");
  Partition();
  EXPECT_EQ(NodesOf(kPs0, "_Send").size(), 2u);
  const std::vector<Node*> copies = NodesOf(kWorker, "Const");
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_THAT(copies[0]->name(), HasSubstr("small/_replica_"));
  EXPECT_THAT(copies[0]->origins(), ElementsAre("small"));
  EXPECT_EQ(NodeOf(kWorker, "a")->input(0).node, copies[0]);
}

TEST_F(PartitionTest, FeedsAndFetchesAreEdgesExceptAtHome) {
  const Endpoint x = X(kPs0);
  const Endpoint y = Op(kPs0, "Neg", {x}, "y"), z = Op(kWorker, "Exp", {x}, "z");
  options_.feeds = {x};
  options_.feed_names = {"x:0"};
  options_.fetches = {y, z};
  options_.fetch_names = {"y:0", "z:0"};
  Partition();
  Part* home = PartOf(kWorker);
  ASSERT_EQ(home->home_feeds.size(), 1u);
  EXPECT_EQ(home->home_feeds[0].second, NodeOf(kWorker, "z")->input(0));
  EXPECT_FALSE(home->home_feeds[0].second.node->is_detached());
  ASSERT_EQ(home->home_fetches.size(), 1u);
  EXPECT_EQ(home->home_fetches[0].first, 1);
  EXPECT_EQ(home->home_fetches[0].second.name(), "z:0");
  EXPECT_THAT(home->feeds, IsEmpty());

  Part* ps = PartOf(kPs0);
  ASSERT_EQ(ps->feeds.size(), 1u);
  EXPECT_EQ(ps->feeds[0].key, RendezvousKeyText(kPs0, options_.incarnations.at(kPs0), kPs0, "x:0"));
  EXPECT_EQ(ps->fetches[0].key, RendezvousKeyText(kPs0, options_.incarnations.at(kPs0), kPs0, "y:0"));
  EXPECT_EQ(NodeOf(kPs0, "y")->input(0).node, NodeOf(kPs0, "_recv_x_0"));
  EXPECT_TRUE(NodeOf(kPs0, "_recv_x_0")->AttrOr<bool>("client_terminated", false));
  EXPECT_EQ(NodeOf(kPs0, "_send_y_0")->input(0).name(), "y:0");
  EXPECT_EQ(std::count_if(ps->graph->nodes().begin(), ps->graph->nodes().end(),
                          [](Node* n) { return n->is_type("Placeholder"); }),
            0);
}

TEST_F(PartitionTest, AHandleMayNotLeaveItsTask) {
  const Endpoint handle = On(
      kPs0, b_.Op("VarHandleOp", std::vector<Endpoint>{}, {{"dtype", DType::kFloat}, {"shape", PartialShape()}}, "v"));
  On(kWorker, b_.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}, "read"));
  const Status status = Fail();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node v}}"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node read}}"));
}

TEST_F(PartitionTest, AVariableIsSentAfterTheUpdateThatItsReaderWaitsFor) {
  const Endpoint v = On(
      kPs0, b_.Op("VariableV2", std::vector<Endpoint>{}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}}, "v"));
  const Endpoint one = On(kPs0, b_.Const(Tensor::Scalar(1.0f)));
  const Endpoint update = Op(kPs0, "AssignAdd", {v, one}, "update");
  Op(kWorker, "Neg", {v}, "early");
  b_.control_inputs = {update.node};
  Op(kWorker, "Neg", {v}, "late");
  Partition();
  int waiting = 0;
  for (const Node* send : NodesOf(kPs0, "_Send")) {
    if (send->input(0).node->name() != "v") continue;
    EXPECT_EQ(send->AttrOr<DType>("T", DType::kInvalid), DType::kFloat);
    waiting += send->control_inputs().empty() ? 0 : 1;
  }
  EXPECT_EQ(waiting, 1);
  EXPECT_NE(NodeOf(kWorker, "early")->input(0), NodeOf(kWorker, "late")->input(0));
}

TEST_F(PartitionTest, ALoopOverTasksGoesRoundOnEach) {
  const Endpoint x = X(kWorker);
  const auto enter = [&](const char* device, Endpoint e, bool constant, const char* name) {
    return On(device, b_.Op("Enter", {e}, {{"frame_name", "f"}, {"is_constant", constant}}, name));
  };
  const Endpoint start = enter(kWorker, x, false, "enter"), limit = enter(kWorker, x, true, "limit");
  const Endpoint merge = Op(kWorker, "Merge", {start, start}, "merge");
  const Endpoint less = Op(kWorker, "Less", {merge, limit}, "less");
  const Endpoint cond = Op(kPs1, "LoopCond", {less}, "cond");
  const Endpoint gate = Op(kWorker, "Switch", {merge, cond}, "gate");
  const Endpoint body = On(kPs0, b_.Op("Mul", {Endpoint{gate.node, 1}, limit}, {}, "body"));
  const Endpoint next = Op(kPs0, "NextIteration", {body}, "next");
  graph_->SetInput(merge.node, 1, next);
  Op(kPs1, "Exit", {gate}, "exit");
  Partition();
  // What only hands a value on stands beside those that give and take it: nothing of the loop is left on ps1.
  EXPECT_EQ(PartOf(kPs1), nullptr);
  // The invariant is sent once, outside of the loop, and entered on the other side.
  Node* twin = NodeOf(kPs0, "body")->input(1).node;
  ASSERT_TRUE(twin->IsEnter());
  EXPECT_TRUE(twin->AttrOr<bool>("is_constant", false));
  EXPECT_THAT(twin->input(0).node->control_inputs(), IsEmpty());
  // What is received in the loop waits for the Merge of the control loop, which the predicate drives.
  Node* recv = NodeOf(kPs0, "body")->input(0).node;
  ASSERT_TRUE(recv->is_type("_Recv"));
  ASSERT_EQ(recv->control_inputs().size(), 1u);
  const Node* trigger = recv->control_inputs()[0];
  ASSERT_TRUE(trigger->IsMerge());
  EXPECT_EQ(Str(trigger->input(0).node, "frame_name"), "f");
  EXPECT_TRUE(trigger->input(1).node->IsNextIteration());
  const Node* control_gate = trigger->input(1).node->input(0).node;
  EXPECT_TRUE(control_gate->input(1).node->is_type("_HostRecv"));
  EXPECT_THAT(control_gate->input(1).node->control_inputs(), ElementsAre(trigger));
  EXPECT_THAT(trigger->origins(), ElementsAre("cond"));
  // The back edge closes on the Merge's own task.
  EXPECT_TRUE(NodeOf(kWorker, "merge")->input(1).node->IsNextIteration());
}

TEST_F(PartitionTest, ALoopWithoutAConditionCannotBeCut) {
  const Endpoint e = On(kWorker, b_.Op("Enter", {X(kWorker)}, {{"frame_name", "f"}}, "enter"));
  Op(kPs0, "Neg", {Op(kWorker, "Exp", {e}, "y")}, "z");
  const Status status = Fail();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node enter}}"));
}

TEST_F(PartitionTest, OnlyPartsThatCallFunctionsHaveThem) {
  graph_->mutable_library()->add_function()->mutable_signature()->set_name("f");
  pb::VersionDef versions;
  versions.set_producer(77);
  graph_->set_versions(versions);
  const Endpoint x = X(kWorker);
  pb::AttrValue call;
  call.mutable_func()->set_name("f");
  Node* node = Op(kPs0, "Neg", {x}, "calls").node;
  graph_->SetAttr(node, "_f", call);
  Partition();
  EXPECT_EQ(PartOf(kPs0)->graph->library().function_size(), 1);
  EXPECT_EQ(PartOf(kWorker)->graph->library().function_size(), 0);
  EXPECT_EQ(PartOf(kWorker)->graph->versions().producer(), 77);
}

TEST_F(PartitionTest, TheControlLoopsOfTensorFlowsMastersAreTaken) {
  // Their names start with an underscore, which no other node of these ops may have.
  for (const char* name : {"_cloopwhile/LoopCond_S7", "_loop"}) {
    const auto added = graph_->AddNode({.name = name, .op = "NoOp"});
    EXPECT_EQ(added.ok(), absl::StartsWith(name, "_cloop")) << name;
  }
}

TEST_F(PartitionTest, ANodeWithoutADeviceIsNamed) {
  b_.Op("Neg", {X(kWorker)}, {}, "nowhere");
  EXPECT_THAT(std::string(Fail().message()), HasSubstr("{{node nowhere}}"));
}

}  // namespace
}  // namespace millrace
