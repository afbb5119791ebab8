#include "tests/golden/places.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"

namespace millrace::golden {
namespace {

using ::testing::HasSubstr;

constexpr char kGpu[] = "/job:localhost/replica:0/task:0/device:GPU:0";
constexpr char kCpu0[] = "/job:localhost/replica:0/task:0/device:CPU:0";

// x and text ask for a GPU; text has no kernel there.
class PlacesTest : public ::testing::Test {
 protected:
  PlacesTest() : b_(&graph_) {
    b_.device = "/device:GPU:0";
    x_ = b_.Op("Identity", {b_.Scalar(1.0f)}, {}, "x");
    b_.Op("AsString", {x_}, {{"T", DType::kFloat}}, "text");
  }
  void Ran(const std::string& node, const std::string& device) {
    auto* const stats = step_.mutable_step_stats()->add_dev_stats();
    stats->set_device(device);
    stats->add_node_stats()->set_node_name(node);
  }
  Status Note() {
    EXPECT_TRUE(b_.ok()) << b_.status();
    return places_.Note(graph_, step_);
  }

  Graph graph_;
  GraphBuilder b_;
  Endpoint x_;
  RunMetadata step_;
  Places places_;
};

TEST_F(PlacesTest, NodesAreCounted) {
  Ran("x", kGpu);
  Ran("text", kCpu0);
  Ran("text", kCpu0);
  EXPECT_TRUE(Note().ok());
  EXPECT_EQ(places_.on_gpu(), 1);
  EXPECT_EQ(places_.on_cpu(), 2);
  EXPECT_EQ(places_.CpuOps(), "AsString 2");
}

TEST_F(PlacesTest, ANodeWithAGpuKernelMayNotBeOnTheCpu) {
  Ran("x", kCpu0);
  EXPECT_THAT(Note().message(), HasSubstr("x (op Identity) asks for /device:GPU:0, which has a kernel for it"));
}

TEST_F(PlacesTest, UnlessItMustBeWithOneThatHasNone) {
  b_.colocate_with = {"text"};
  b_.Op("Identity", {x_}, {}, "with_text");
  Ran("with_text", kCpu0);
  EXPECT_TRUE(Note().ok());
}

TEST_F(PlacesTest, ANodeThatAsksForNothingMayBeAnywhere) {
  b_.device = "";
  b_.Op("Identity", {x_}, {}, "free");
  Ran("free", kCpu0);
  EXPECT_TRUE(Note().ok());
}

}  // namespace
}  // namespace millrace::golden
