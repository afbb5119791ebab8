#include "millrace/cluster/step/step_edges.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/step/group_receives.h"
#include "millrace/cluster/step/ps_worker_graph_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class StepEdgesTest : public PsWorkerGraphTest {
 protected:
  void Cut() {
    CutIntoParts();
    const auto all = [](absl::string_view) { return true; };
    GroupReceives(absl::MakeSpan(parts_), all);
    NumberEdges(absl::MakeSpan(parts_), kHome, all, &client_);
    for (const Part& part : parts_) (part.task == kHome ? home_ : ps_) = FindStepEdges(part.graph.get());
  }
  // The tensors of the ps that wait for the end of its part.
  std::vector<std::string> Riders() const {
    std::vector<std::string> names;
    for (const StepEdge& edge : ps_->edges) {
      if (!edge.rides) continue;
      const std::string tensor = edge.key.substr(edge.key.find("edge_") + 5);
      names.push_back(tensor.substr(tensor.find('_') + 1, tensor.find(';') - tensor.find('_') - 1));
    }
    return names;
  }

  std::vector<ClientNumbers> client_;
  std::shared_ptr<const StepEdges> home_, ps_;
};

TEST_F(StepEdgesTest, BothEndsOfAnEdgeHaveTheSameNumber) {
  const Endpoint a = Read(Variable("a")), b = Read(Variable("b"));
  const Endpoint x = Unary(kWorker, "Neg", a, "x");
  Unary(kPs, "Neg", x, "y");
  Unary(kWorker, "Neg", b, "z");
  Cut();
  ASSERT_NE(home_, nullptr);
  ASSERT_NE(ps_, nullptr);
  ASSERT_EQ(home_->edges.size(), 3u);
  ASSERT_EQ(ps_->edges.size(), 3u);
  EXPECT_EQ(home_->tasks[0].name, "/job:ps/replica:0/task:0");
  EXPECT_EQ(home_->tasks[0].incarnation, 2u);
  EXPECT_EQ(ps_->tasks[0].name, kHome);
  for (const StepEdge& edge : home_->edges) {
    const int there = edge.arrives() ? ps_->tasks[0].leaving.at(edge.number) : ps_->Arriving(0, edge.number);
    ASSERT_GE(there, 0);
    EXPECT_EQ(ps_->edges[there].key, edge.key);
  }
  EXPECT_EQ(ps_->Arriving(0, 1000), -1);
}

TEST_F(StepEdgesTest, WhatNeedsNothingFromHomeRides) {
  Unary(kWorker, "Neg", Read(Variable("a")), "x");
  Unary(kWorker, "Neg", Read(Variable("b")), "y");
  Cut();
  EXPECT_THAT(Riders(), UnorderedElementsAre("a/read", "b/read"));
}

TEST_F(StepEdgesTest, WhatHomeNeedsToGoOnGoesAtOnceAndTheLastOfItRides) {
  const Endpoint handle = Variable("a");
  const Endpoint gradient = Unary(kWorker, "Neg", Read(handle), "gradient");
  Node* const update =
      b_.AddNode("AssignAddVariableOp", std::vector<Endpoint>{handle, gradient}, {{"dtype", DType::kFloat}}, "update");
  graph_->SetAssignedDevice(update, kPs);
  Node* const after = b_.AddNode("NoOp", {}, {}, "after");
  graph_->SetAssignedDevice(after, kWorker);
  graph_->AddControlInput(after, update);
  Cut();
  const std::vector<std::string> riders = Riders();
  ASSERT_EQ(riders.size(), 1u);
  EXPECT_TRUE(absl::StartsWith(riders[0], "update/")) << riders[0];
}

TEST_F(StepEdgesTest, NothingRidesThatWouldWaitForAnOpThatMayBlock) {
  const AttrList types = {{"component_types", std::vector<DType>{DType::kFloat}}};
  const Endpoint queue = On(kPs, b_.Op("FIFOQueueV2", {}, types, "queue"));
  const Endpoint taken = On(kPs, b_.Op("QueueDequeueV2", {queue}, types, "take"));
  Unary(kWorker, "Neg", Read(Variable("a")), "x");
  Unary(kWorker, "Neg", taken, "y");
  Cut();
  EXPECT_THAT(Riders(), ElementsAre("take"));
}

TEST_F(StepEdgesTest, NumbersThatMakeNoSenseAreLeftOut) {
  Unary(kWorker, "Neg", Read(Variable("a")), "x");
  Unary(kWorker, "Neg", Read(Variable("b")), "y");
  Cut();
  for (const Part& part : parts_) {
    for (Node* node : part.graph->nodes()) {
      if (node->is_type("_Send")) part.graph->SetAttr(node, kEdgeNumberAttr, AttrInit(int64_t{1} << 40).value());
      if (node->is_type("_Recv")) part.graph->SetAttr(node, kEdgeNumberAttr, AttrInit(int64_t{0}).value());
    }
    const auto edges = FindStepEdges(part.graph.get());
    EXPECT_EQ(edges->edges.size(), part.task == kHome ? 1u : 0u);
  }
}

}  // namespace
}  // namespace millrace
