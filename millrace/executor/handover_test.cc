// Kernels that block or work for long let go of what their thread has to do besides (ThreadHandover).
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "millrace/base/event_thread.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_handover.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/executor/plan.h"
#include "millrace/executor/step_arena.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// What a kernel waits for: something that its own thread would have done next.
Notification* awaited = nullptr;
int64_t pieces = 0;

MILLRACE_OP(TestBlockedExpensive).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
class BlockedExpensiveKernel : public Kernel {
 public:
  explicit BlockedExpensiveKernel(KernelInit&) {}
  bool is_expensive() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    if (!awaited->WaitFor(absl::Seconds(10))) return Internal("the executor did not hand over");
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }
};
MILLRACE_KERNEL(TestBlockedExpensive, kCpu, BlockedExpensiveKernel);

MILLRACE_OP(TestBlocked).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
class BlockedKernel : public Kernel {
 public:
  explicit BlockedKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    ctx.HandOver();
    if (!awaited->WaitFor(absl::Seconds(10))) return Internal("the kernel did not hand over");
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }
};
MILLRACE_KERNEL(TestBlocked, kCpu, BlockedKernel);

MILLRACE_OP(TestManyPieces).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
class ManyPiecesKernel : public Kernel {
 public:
  explicit ManyPiecesKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    ctx.ParallelFor(pieces, 1, [](int64_t, int64_t) {});
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }
};
MILLRACE_KERNEL(TestManyPieces, kCpu, ManyPiecesKernel);

class HandoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    awaited = &ran_;
    handover_->RunNext(&pool_, [this](EventThread*) {
      where_ = std::this_thread::get_id();
      ran_.Notify();
    });
  }

  // Runs so many of such ops, beside each other, on this thread and the pool.
  Status Run(const char* op, int count) {
    auto graph = std::make_unique<Graph>();
    GraphBuilder b(graph.get());
    const Endpoint x = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
    std::vector<Endpoint> fetches;
    for (int i = 0; i < count; ++i) fetches.push_back(b.Op(op, {x}));
    EXPECT_TRUE(b.ok()) << b.status();
    PlanOptions options;
    options.feeds = {x};
    options.fetches = fetches;
    options.device_of = [this](const Node&) { return device_.get(); };
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<Plan> plan, Plan::Compile(std::move(graph), options));
    const RefPtr<StepArena> arena = MakeRef<StepArena>();
    StepContext step;
    step.inter_op = &pool_;
    step.handover = handover_.get();
    const Tensor feed = Tensor::Scalar(1.f);
    std::vector<Tensor> results(count);
    return plan->Run({.step = &step, .feeds = absl::MakeConstSpan(&feed, 1), .allocator = arena.get()},
                     absl::MakeSpan(results));
  }

  const std::shared_ptr<Device> device_ = NewCpuDevice({});
  ThreadPool pool_{"inter_op", 2};  // one of them may be in a kernel that waits
  EventThread thread_{EventThread::Kind::kServes};
  const RefPtr<ThreadHandover> handover_ = MakeRef<ThreadHandover>();
  const ThreadHandover::Entry entry_{handover_, &thread_};
  Notification ran_;
  std::thread::id where_;
};

TEST_F(HandoverTest, TheExecutorHandsOverBeforeAnExpensiveNode) {
  EXPECT_EQ(Run("TestBlockedExpensive", 2), absl::OkStatus());
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(HandoverTest, AKernelThatWaitsHandsOver) {
  EXPECT_EQ(Run("TestBlocked", 1), absl::OkStatus());
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(HandoverTest, WorkOfManyPiecesHandsOver) {
  pieces = 9;
  EXPECT_EQ(Run("TestManyPieces", 1), absl::OkStatus());
  EXPECT_TRUE(ran_.WaitFor(absl::Seconds(10)));
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(HandoverTest, ShortWorkDoesNot) {
  pieces = 8;
  EXPECT_EQ(Run("TestManyPieces", 1), absl::OkStatus());
  EXPECT_FALSE(ran_.HasBeenNotified());
  thread_.RunLeft();
  EXPECT_EQ(where_, std::this_thread::get_id());
}

}  // namespace
}  // namespace millrace
