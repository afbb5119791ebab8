#include "millrace/graph/placement.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/host_memory.h"

namespace millrace {
namespace {

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

}  // namespace
}  // namespace millrace
