// Which nodes of the networks that gpu_training trains run on a GPU, by placement alone: there need not be one.
#include "millrace/graph/placement.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "millrace/device/cuda_devices.h"
#include "millrace/graph/graph_def.h"
#include "millrace/proto/master.pb.h"
#include "millrace/runtime/kernel_registry.h"
#include "tests/exchanges/exchange.h"
#include "tests/golden/archive.h"
#include "tests/gpu/training_models.h"

namespace millrace {
namespace {

constexpr char kCpuName[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kGpuName[] = "/job:localhost/replica:0/task:0/device:GPU:0";

// What a step of training runs on each device, by op.
struct Placed {
  int gpu = 0;
  std::map<std::string, int> cpu;
};

Placed Place(const std::string& name) {
  CudaDeviceCount();  // opens the library, which registers its kernels
  Placed placed;
  for (const NamedModel& named : TrainingModels()) {
    if (named.name != name) continue;
    const Scope scope = Scope::NewRoot();
    const TrainingModel model = named.build(scope, named.batch);
    EXPECT_TRUE(scope.ok()) << scope.status();
    const PlacementOptions options = {
        .devices = {kCpuName, kGpuName}, .has_kernel = [](const Node& node, const std::string& device_type) {
          return node.is_type("NoOp") || KernelRegistry::Global().HasFor(node, device_type);
        }};
    const Status status = PlaceNodes(scope.graph(), options);
    EXPECT_TRUE(status.ok()) << status;
    std::set<const Node*> seen;
    std::vector<const Node*> open = {model.train.node(), model.loss.node()};
    while (!open.empty()) {
      const Node* const node = open.back();
      open.pop_back();
      if (!seen.insert(node).second) continue;
      if (node->assigned_device() == kGpuName) {
        ++placed.gpu;
      } else {
        ++placed.cpu[node->type()];
      }
      for (const Endpoint& input : node->inputs()) open.push_back(input.node);
      for (const Node* before : node->control_inputs()) open.push_back(before);
    }
  }
  return placed;
}

class WholeNetworks : public ::testing::TestWithParam<const char*> {};

TEST_P(WholeNetworks, TrainOnTheGpu) {
  const Placed placed = Place(GetParam());
  EXPECT_GT(placed.gpu, 20);
  for (const auto& [op, count] : placed.cpu) ADD_FAILURE() << count << " nodes of " << op << " are on the CPU";
}

INSTANTIATE_TEST_SUITE_P(Placement, WholeNetworks, ::testing::Values("mlp", "adam", "conv", "resnet20", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Placement, OnlyTheCellsOfAnLstmAreOnTheCpu) {
  const Placed placed = Place("lstm");
  EXPECT_GT(placed.gpu, 20);
  for (const auto& [op, count] : placed.cpu) {
    // Shape follows what it is the shape of.
    EXPECT_TRUE(absl::StartsWith(op, "BlockLSTM") || op == "Shape") << count << " nodes of " << op << " are on the CPU";
  }
}

// What programs of TensorFlow's clients want on a GPU has a kernel there.
TEST(Placement, NodesOfRecordedProgramsThatAskForAGpuHaveKernelsThere) {
  CudaDeviceCount();
  const auto files = golden::ReadArchive(MILLRACE_TESTDATA "/exchanges/programs.tar.xz").value();
  int asked = 0;
  for (const auto& [file, contents] : files) {
    if (!absl::EndsWith(file, ".exchanges")) continue;
    SCOPED_TRACE(file);
    pb::GraphDef def;  // of the last session
    const std::vector<exchanges::Exchange> calls = exchanges::Read(contents).value();
    for (const exchanges::Exchange& exchange : calls) {
      if (exchange.method == "CreateSession") {
        pb::CreateSessionRequest request;
        ASSERT_TRUE(request.ParseFromString(exchange.request));
        def = request.graph_def();
      } else if (exchange.method == "ExtendSession") {
        pb::ExtendSessionRequest request;
        ASSERT_TRUE(request.ParseFromString(exchange.request));
        def.MergeFrom(request.graph_def());
      } else {
        continue;
      }
      Graph graph;
      const Status imported = ImportGraphDef(def, &graph);
      ASSERT_TRUE(imported.ok()) << imported;
      for (const Node* node : graph.nodes()) {
        // "mistakes" asks for GPU:7, and for strings on a GPU. A call's nodes are placed by themselves.
        if (!absl::StrContains(node->requested_device(), "GPU") || file == "mistakes.exchanges") continue;
        if (node->op().call_kind != CallKind::kNone) continue;
        ++asked;
        const bool has_kernel = node->is_type("NoOp") || KernelRegistry::Global().HasFor(*node, "GPU");
        EXPECT_EQ(has_kernel, !absl::StartsWith(node->name(), "falls_back/")) << node->name() << " " << node->type();
      }
    }
  }
  EXPECT_GT(asked, 450);
}

}  // namespace
}  // namespace millrace
