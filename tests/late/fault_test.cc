// A GPU that fails in the middle of a training: see README.md.
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/server.h"
#include "millrace/executor/kernel_execution.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/session/session.h"
#include "tests/late/late_device.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Passes x on; the card breaks when it comes to an x below zero.
MILLRACE_OP(LateFaultTest).Input("x: float").Output("y: float").NotDifferentiable();
// The same, and the card does not say which node it was, as a real one does not.
MILLRACE_OP(LateSilentFaultTest).Input("x: float").Output("y: float").NotDifferentiable();

class FaultKernel : public Kernel {
 public:
  explicit FaultKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    late::LateCard* const card = late::LateDevice::Of(ctx.device())->card();
    const Tensor x = card->ViewOf(ctx.input(0));
    Status why = Internal("an illegal memory access was encountered");
    if (ctx.node().is_type("LateFaultTest")) why = NodeError(ctx.node(), *ctx.device(), why);
    card->stream().Enqueue([card, x, why]() -> Status {
      if (*static_cast<const float*>(x.raw_data()) >= 0) return absl::OkStatus();
      card->Fail(why);
      return why;
    });
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }
};

MILLRACE_KERNEL(LateFaultTest, kCuda, FaultKernel);
MILLRACE_KERNEL(LateSilentFaultTest, kCuda, FaultKernel);

// Each test has a card of its own, which nobody mends.
class DeviceFaultTest : public ::testing::TestWithParam<const char*> {
 protected:
  DeviceFaultTest() : b_(&graph_) {
    late::UseLateGpus(16);
    static int next = 0;
    options_.config.mutable_gpu_options()->set_visible_device_list(absl::StrCat(next++));
    options_.passes = PassOptions::None();
    if (absl::string_view(GetParam()) == "Local") return;
    ServerOptions server;
    server.default_config = std::exchange(options_.config, {});
    server_ = Server::CreateLocalServer(server).value();
    options_.target = server_->target();
    options_.config.mutable_rpc_options()->set_use_rpc_for_inprocess_master(absl::string_view(GetParam()) == "OverRpc");
  }

  // total += fault(x) on the GPU, and a sum on the CPU.
  void Build(const std::string& op) {
    const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}}, "x");
    b_.device = "/device:GPU:0";
    const Endpoint total =
        b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}}, "total");
    b_.Op("Assign", {total, b_.Scalar(0.0f)}, {}, "set");
    const Endpoint fault = b_.Op(op, {x}, {}, "fault");
    b_.Op("AssignAdd", {total, fault}, {}, "train");
    b_.device = "/device:CPU:0";
    b_.Op("Add", {x, x}, {}, "on_cpu");
    ASSERT_TRUE(b_.ok()) << b_.status();
  }
  std::unique_ptr<Session> Open() {
    auto session = Session::Create(options_).value();
    const Status extended = session->Extend(graph_);
    EXPECT_TRUE(extended.ok()) << extended;
    return session;
  }
  static Status Run(Session& session, const std::string& target, float x) {
    std::vector<Tensor> none;
    return session.Run(RunOptions(), {{"x:0", Tensor::Scalar(x)}}, {}, {target}, &none, nullptr);
  }

  Graph graph_;
  GraphBuilder b_;
  SessionOptions options_;
  std::unique_ptr<Server> server_;
};

TEST_P(DeviceFaultTest, TheStepFailsWithItsNodeAndTheGpuIsUnavailableFromThenOn) {
  Build("LateFaultTest");
  const auto session = Open();
  ASSERT_TRUE(Run(*session, "set", 0).ok());
  for (int i = 0; i < 3; ++i) {
    const Status status = Run(*session, "train", 1);
    ASSERT_TRUE(status.ok()) << status;
  }
  const Status failed = Run(*session, "train", -1);
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal) << failed;
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("an illegal memory access"), HasSubstr("{{node fault}}"),
                                      HasSubstr("device:GPU:0 failed in step ")));
  const auto later_session = Open();
  for (Session* any : {session.get(), later_session.get()}) {
    const Status later = Run(*any, "train", 1);
    EXPECT_TRUE(absl::IsUnavailable(later)) << later;
    EXPECT_THAT(later.message(), AllOf(HasSubstr("GPU:0 (late) has failed"), HasSubstr("an illegal memory access")));
    const auto on_cpu = any->Run({{"x:0", Tensor::Scalar(2.0f)}}, {"on_cpu:0"});
    ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
    EXPECT_EQ((*on_cpu)[0].scalar<float>(), 4);
  }
}

TEST_P(DeviceFaultTest, AFaultThatNamesNoNodeIsThatOfTheStepsNodes) {
  Build("LateSilentFaultTest");
  const auto session = Open();
  ASSERT_TRUE(Run(*session, "set", 0).ok());
  const Status failed = Run(*session, "train", -1);
  SCOPED_TRACE(failed.ToString());
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("an illegal memory access"), HasSubstr("failed in step "),
                                      HasSubstr("in one of its nodes there: "), HasSubstr("{{node fault}}")));
  EXPECT_THAT(failed.message(), Not(HasSubstr("{{node on_cpu}}")));
}

INSTANTIATE_TEST_SUITE_P(Sessions, DeviceFaultTest, ::testing::Values("Local", "InServer", "OverRpc"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millrace
