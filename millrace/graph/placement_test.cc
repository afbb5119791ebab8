#include "millrace/graph/placement.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/host_memory.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kCpu0[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kGpu0[] = "/job:localhost/replica:0/task:0/device:GPU:0";
constexpr char kGpu1[] = "/job:localhost/replica:0/task:0/device:GPU:1";

// A graph whose nodes are on the devices that the test says.
class InsertCopiesTest : public ::testing::Test {
 protected:
  InsertCopiesTest() : b_(&graph_) {}

  Endpoint On(const char* device, Endpoint e) {
    graph_.SetAssignedDevice(e.node, device);
    return e;
  }
  Endpoint Const(const char* device, const Tensor& value) { return On(device, b_.Const(value)); }

  Graph graph_;
  GraphBuilder b_;
};

bool IsCopy(const Endpoint& e, const char* device, bool to_host) {
  return e.node->is_type("_CopyToDevice") && e.node->assigned_device() == device &&
         e.node->AttrOr<bool>("to_host", false) == to_host;
}

TEST_F(InsertCopiesTest, OneCopyIntoADeviceForAllWhoUseItThere) {
  const Endpoint x = Const(kCpu0, Tensor::Scalar(1.0f));
  const Endpoint y = On(kGpu0, b_.Mul(x, x)), z = On(kGpu0, b_.Add(y, x));
  ASSERT_TRUE(InsertCopies(&graph_, nullptr).ok());
  EXPECT_TRUE(IsCopy(y.node->input(0), kGpu0, false));
  EXPECT_EQ(y.node->input(0), y.node->input(1));
  EXPECT_EQ(y.node->input(0), z.node->input(1));
  EXPECT_EQ(z.node->input(0), y);
  EXPECT_EQ(y.node->input(0).node->input(0), x);
}

TEST_F(InsertCopiesTest, TheWayOutRunsOnTheDeviceAndServesFetchesToo) {
  const Endpoint x = Const(kGpu0, Tensor::Scalar(1.0f));
  const Endpoint y = On(kCpu0, b_.Add(x, x));
  std::vector<Endpoint> fetches = {x, y};
  ASSERT_TRUE(InsertCopies(&graph_, &fetches).ok());
  EXPECT_TRUE(IsCopy(y.node->input(0), kGpu0, true));
  EXPECT_EQ(fetches[0], y.node->input(0));
  EXPECT_EQ(fetches[1], y);
}

TEST_F(InsertCopiesTest, FetchesOfAGraphOnOneDeviceAreCopiedOut) {
  std::vector<Endpoint> fetches = {Const(kGpu0, Tensor::Scalar(1.0f))};
  ASSERT_TRUE(InsertCopies(&graph_, &fetches).ok());
  EXPECT_TRUE(IsCopy(fetches[0], kGpu0, true));
}

TEST_F(InsertCopiesTest, BetweenTwoDevicesTheWayLeadsThroughTheHost) {
  const Endpoint x = Const(kGpu0, Tensor::Scalar(1.0f));
  const Endpoint y = On(kGpu1, b_.Mul(x, x));
  ASSERT_TRUE(InsertCopies(&graph_, nullptr).ok());
  EXPECT_TRUE(IsCopy(y.node->input(0), kGpu1, false));
  EXPECT_TRUE(IsCopy(y.node->input(0).node->input(0), kGpu0, true));
}

TEST_F(InsertCopiesTest, WhatTheHostReadsStaysThere) {
  const Endpoint x = Const(kGpu0, Tensor::Of<float>({1, 2}));
  const Endpoint shape = On(kGpu0, b_.Shape(x));
  const Endpoint y = On(kGpu0, b_.Reshape(x, shape));
  const Endpoint text = Const(kGpu0, Tensor::Scalar("text"));
  const Endpoint same = On(kGpu0, b_.Op("Identity", {text}));
  ASSERT_TRUE(InsertCopies(&graph_, nullptr).ok());
  EXPECT_EQ(y.node->input(1), shape);
  EXPECT_EQ(same.node->input(0), text);
  EXPECT_TRUE(IsInHostMemory(shape));
  EXPECT_FALSE(IsInHostMemory(y));
}

TEST_F(InsertCopiesTest, AFeedIsTheHosts) {
  const Endpoint x = On(kGpu0, b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}));
  const Endpoint y = On(kGpu0, b_.Mul(x, x));
  graph_.Detach([&](const Node* node) { return node == x.node; });
  ASSERT_TRUE(InsertCopies(&graph_, nullptr).ok());
  EXPECT_TRUE(IsCopy(y.node->input(0), kGpu0, false));
}

TEST_F(InsertCopiesTest, OneProcessorNeedsNone) {
  std::vector<Endpoint> fetches = {On(kCpu0, b_.Neg(Const(kCpu0, Tensor::Scalar(1.0f))))};
  ASSERT_TRUE(InsertCopies(&graph_, &fetches).ok());
  EXPECT_EQ(graph_.nodes().size(), 2u);
}

// A reference is in host memory, its value where the variable is.
TEST_F(InsertCopiesTest, EachReaderOfAReferenceOnAnotherDeviceHasACopyOfItsOwnTime) {
  const AttrList attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}};
  const Endpoint v = On(kGpu0, b_.Op("VariableV2", {}, attrs));
  const Endpoint here = On(kGpu0, b_.Op("Identity", {v}));
  const Endpoint first = On(kCpu0, b_.Op("Identity", {v}));
  b_.control_inputs = {here.node};
  const Endpoint second = On(kCpu0, b_.Op("Identity", {v}));
  b_.control_inputs.clear();
  const Endpoint other = On(kGpu1, b_.Op("Identity", {v}));
  std::vector<Endpoint> fetches = {v};
  ASSERT_TRUE(InsertCopies(&graph_, &fetches).ok());
  EXPECT_EQ(here.node->input(0), v);
  EXPECT_TRUE(IsCopy(first.node->input(0), kGpu0, true));
  EXPECT_TRUE(IsCopy(second.node->input(0), kGpu0, true));
  EXPECT_NE(first.node->input(0), second.node->input(0));
  EXPECT_THAT(second.node->input(0).node->control_inputs(), ::testing::ElementsAre(here.node));
  EXPECT_TRUE(IsCopy(other.node->input(0), kGpu1, false));
  EXPECT_TRUE(IsCopy(other.node->input(0).node->input(0), kGpu0, true));
  EXPECT_TRUE(IsCopy(fetches[0], kGpu0, true));
}

TEST_F(InsertCopiesTest, IntegersOfShapesStayInHostMemory) {
  const Endpoint x = Const(kGpu0, Tensor::Of<int32_t>({1, 2}));
  const Endpoint y = On(kGpu0, b_.Add(x, x));
  const Endpoint wide = On(kGpu0, b_.Op("Cast", {y}, {{"DstT", DType::kFloat}}));
  std::vector<Endpoint> fetches = {y};
  ASSERT_TRUE(InsertCopies(&graph_, &fetches).ok());
  EXPECT_EQ(y.node->input(0), x);
  EXPECT_EQ(fetches[0], y);
  EXPECT_TRUE(IsCopy(wide.node->input(0), kGpu0, false));
}

// Nodes that ask for devices of a cluster with a GPU on each worker.
class PlaceNodesTest : public ::testing::Test {
 protected:
  PlaceNodesTest() : b_(&graph_) {
    for (const char* task : {"/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1", "/job:ps/replica:0/task:0",
                             "/job:ps/replica:0/task:1"}) {
      options_.devices.push_back(absl::StrCat(task, "/device:CPU:0"));
      if (absl::StrContains(task, "worker")) options_.devices.push_back(absl::StrCat(task, "/device:GPU:0"));
    }
    options_.has_kernel = [this](const Node& node, const std::string& type) {
      ++asked_;
      return type == "CPU" || !node.is_type("Shape");
    };
    options_.default_device = "/job:worker/replica:0/task:1/device:CPU:0";
  }

  Node* Add(const std::string& device, absl::string_view name = "n", const char* op = "Placeholder") {
    b_.device = device;
    return b_.AddNode(op, {}, {{"dtype", DType::kFloat}}, name);
  }
  Status Place() { return PlaceNodes(&graph_, options_); }
  std::string Placed(const std::string& device) {
    Node* node = Add(device, "n");
    const Status status = Place();
    return status.ok() ? node->assigned_device() : std::string(status.message());
  }

  Graph graph_;
  GraphBuilder b_;
  PlacementOptions options_;
  int asked_ = 0;
};

TEST_F(PlaceNodesTest, TheDefaultFillsInWhatAWishLeavesOpen) {
  EXPECT_EQ(Placed(""), "/job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(Placed("/gpu:0"), "/job:worker/replica:0/task:1/device:GPU:0");
  EXPECT_EQ(Placed("/task:0"), "/job:worker/replica:0/task:0/device:CPU:0");
}

TEST_F(PlaceNodesTest, ANodeThatAsksForNoDeviceRunsOnAGpuIfItHasAKernelThere) {
  options_.default_device = "/job:worker/replica:0/task:1";
  EXPECT_EQ(Placed(""), "/job:worker/replica:0/task:1/device:GPU:0");
  Node* const shape = b_.Op("Shape", {Endpoint{Add("", "x"), 0}}).node;
  Node* const on_ps = Add("/job:ps", "on_ps");
  ASSERT_TRUE(Place().ok());
  EXPECT_EQ(shape->assigned_device(), "/job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(on_ps->assigned_device(), "/job:ps/replica:0/task:0/device:CPU:0");
}

TEST_F(PlaceNodesTest, AConstantFollowsItsOnlyReaders) {
  options_.default_device = "/job:worker/replica:0/task:1";
  Node* const constant = b_.Const(Tensor::Scalar(1.0f)).node;
  Node* const reader = b_.Op("Identity", {Endpoint{constant, 0}}).node;
  graph_.SetRequestedDevice(reader, "/device:CPU:0");
  ASSERT_TRUE(Place().ok());
  EXPECT_EQ(constant->assigned_device(), "/job:worker/replica:0/task:1/device:CPU:0");
}

TEST_F(PlaceNodesTest, AKernelForSomeTypesIsNoneForTheOthers) {
  options_.has_kernel = [](const Node& node, const std::string& type) {
    return type == "CPU" || node.AttrOr<DType>("dtype", DType::kInvalid) == DType::kFloat;
  };
  options_.allow_soft_placement = true;
  b_.device = "/job:worker/task:0/device:GPU:0";
  Node* const floats = b_.AddNode("Placeholder", {}, {{"dtype", DType::kFloat}}, "floats");
  Node* const doubles = b_.AddNode("Placeholder", {}, {{"dtype", DType::kDouble}}, "doubles");
  ASSERT_TRUE(Place().ok());
  EXPECT_EQ(floats->assigned_device(), "/job:worker/replica:0/task:0/device:GPU:0");
  EXPECT_EQ(doubles->assigned_device(), "/job:worker/replica:0/task:0/device:CPU:0");
}

TEST_F(PlaceNodesTest, AJobWithoutATaskIsItsFirst) {
  EXPECT_EQ(Placed("/job:ps"), "/job:ps/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(Placed("/job:ps"), "/job:ps/replica:0/task:0/device:CPU:0");
}

TEST_F(PlaceNodesTest, SoftPlacementKeepsTheTask) {
  options_.allow_soft_placement = true;
  EXPECT_EQ(Placed("/job:ps/task:1/device:GPU:0"), "/job:ps/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(Placed("/device:TPU:3"), "/job:worker/replica:0/task:1/device:GPU:0");
  EXPECT_EQ(Placed("/job:worker/task:0/device:GPU:5"), "/job:worker/replica:0/task:0/device:GPU:0");
}

TEST_F(PlaceNodesTest, AnUnknownTaskIsAnErrorThatListsTheDevices) {
  for (const bool soft : {false, true}) {
    for (const char* wish : {"/job:chief", "/job:ps/task:9", "/task:9", "/job:chief/task:0/device:GPU:0"}) {
      Graph graph;
      GraphBuilder b(&graph);
      b.device = wish;
      b.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "lost");
      options_.allow_soft_placement = soft;
      const Status status = PlaceNodes(&graph, options_);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wish;
      for (const char* part : {"{{node lost}}", "device", wish, "/job:ps/replica:0/task:1/device:CPU:0"}) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(part));
      }
    }
  }
}

TEST_F(PlaceNodesTest, AMissingKernelNamesTheOp) {
  Node* x = Add("", "x");
  b_.device = "/job:worker/task:0/device:GPU:0";
  Node* shape = b_.AddNode("Shape", {x->output(0)}, {}, "s");
  const Status status = Place();
  EXPECT_THAT(std::string(status.message()), HasSubstr("no kernel for op Shape"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node s}}"));
  options_.allow_soft_placement = true;
  ASSERT_TRUE(Place().ok());
  EXPECT_EQ(shape->assigned_device(), "/job:worker/replica:0/task:0/device:CPU:0");
}

TEST_F(PlaceNodesTest, AMalformedDeviceNamesTheNode) {
  const std::string message = Placed("/job:ps/tusk:0");
  EXPECT_THAT(message, HasSubstr("{{node n}}"));
  EXPECT_THAT(message, HasSubstr("device"));
  EXPECT_THAT(message, HasSubstr("tusk:0"));
}

TEST_F(PlaceNodesTest, ColocatedNodesPutTheirWishesTogether) {
  Node* a = Add("/job:ps", "a");
  b_.colocate_with = {"a"};
  Node* b = Add("/task:1", "b");
  Node* c = Add("", "c");
  ASSERT_TRUE(Place().ok());
  for (Node* node : {a, b, c}) EXPECT_EQ(node->assigned_device(), "/job:ps/replica:0/task:1/device:CPU:0");
}

TEST_F(PlaceNodesTest, ColocatedNodesMayNotContradictEachOther) {
  b_.colocate_with = {"root"};
  Node* other = Add("/job:worker/task:0", "other");
  b_.colocate_with.clear();
  Node* root = Add("/job:ps/task:1", "root");
  const Status status = Place();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"{{node other}}", "{{node root}}", "/job:worker/task:0", "/job:ps/task:1"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  // The one that the other names decides, although it comes later.
  options_.allow_soft_placement = true;
  ASSERT_TRUE(Place().ok());
  EXPECT_EQ(root->assigned_device(), "/job:ps/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(other->assigned_device(), root->assigned_device());
}

TEST_F(PlaceNodesTest, NewNodesJoinThoseThatArePlaced) {
  Node* a = Add("", "a");
  ASSERT_TRUE(Place().ok());
  graph_.SetAssignedDevice(a, "/job:ps/replica:0/task:1/device:CPU:0");
  b_.colocate_with = {"a"};
  Node* b = Add("", "b");
  ASSERT_TRUE(Place().ok());
  EXPECT_EQ(b->assigned_device(), a->assigned_device());
}

TEST_F(PlaceNodesTest, KernelsAreAskedForOnceForEachOp) {
  for (int i = 0; i < 1000; ++i) Add(i % 2 == 0 ? "/job:ps" : "", "n");
  ASSERT_TRUE(Place().ok());
  EXPECT_EQ(asked_, 2);
}

}  // namespace
}  // namespace millrace
