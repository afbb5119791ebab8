#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/executor/framed_run.h"
#include "millrace/executor/plan.h"
#include "millrace/executor/step_arena.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// Doubles its input, later, on another thread.
MILLRACE_OP(TestLater).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
class LaterKernel : public AsyncKernel {
 public:
  explicit LaterKernel(KernelInit&) {}
  void ComputeAsync(KernelContext& ctx, Done done) override {
    ctx.step().inter_op->Schedule([&ctx, done = std::move(done)]() mutable {
      auto out = ctx.AllocateOutput(0, ctx.input(0).shape());
      if (!out.ok()) return done(out.status());
      for (int64_t i = 0; i < ctx.input(0).num_elements(); ++i) {
        (*out)->data<float>()[i] = 2 * ctx.input(0).data<float>()[i];
      }
      done(absl::OkStatus());
    });
  }
};
MILLRACE_KERNEL(TestLater, kCpu, LaterKernel);

// Ends only when the step is cancelled.
MILLRACE_OP(TestForever).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
class ForeverKernel : public AsyncKernel {
 public:
  explicit ForeverKernel(KernelInit&) {}
  void ComputeAsync(KernelContext& ctx, Done done) override {
    auto shared = std::make_shared<Done>(std::move(done));
    CancellationManager* cancellation = ctx.cancellation();
    if (!cancellation->Register(cancellation->NewToken(), [shared] { (*shared)(Cancelled("woken")); })) {
      (*shared)(Cancelled("too late"));
    }
  }
};
MILLRACE_KERNEL(TestForever, kCpu, ForeverKernel);

// Fails, saying what it was told to.
MILLRACE_OP(TestFail)
    .Input("x: float")
    .Output("y: float")
    .Attr("message: string")
    .Shape(UnchangedShape)
    .NotDifferentiable();
class FailKernel : public Kernel {
 public:
  explicit FailKernel(KernelInit& init) { init.Attr("message", &message_); }
  Status Compute(KernelContext&) override { return OutOfRange(message_); }

 private:
  std::string message_;
};
MILLRACE_KERNEL(TestFail, kCpu, FailKernel);

// Worth a thread of its own; notes which threads ran it.
MILLRACE_OP(TestHeavy).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
class HeavyKernel : public Kernel {
 public:
  explicit HeavyKernel(KernelInit&) {}
  bool is_expensive() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, ctx.input(0).shape()));
    out->data<float>()[0] = ctx.input(0).data<float>()[0] + 1;
    return absl::OkStatus();
  }
};
MILLRACE_KERNEL(TestHeavy, kCpu, HeavyKernel);

// Throws, as a container does that cannot grow.
MILLRACE_OP(TestThrow)
    .Input("x: float")
    .Output("y: float")
    .Attr("where: {'compute', 'piece', 'length', 'tensor'}")
    .Shape(UnchangedShape)
    .NotDifferentiable();
class ThrowKernel : public Kernel {
 public:
  explicit ThrowKernel(KernelInit& init) { init.Attr("where", &where_); }
  Status Compute(KernelContext& ctx) override {
    if (where_ == "compute") throw std::bad_alloc();
    if (where_ == "length") throw std::length_error("vector::reserve");
    if (where_ == "tensor") Tensor(DType::kFloat, Shape({int64_t{1} << 50}));
    ctx.ParallelFor(64, 1, [](int64_t begin, int64_t) {
      if (begin == 40) throw std::bad_alloc();
    });
    return absl::OkStatus();
  }

 private:
  std::string where_;
};
MILLRACE_KERNEL(TestThrow, kCpu, ThrowKernel);

// Throws as an asynchronous kernel, here or on another thread.
MILLRACE_OP(TestThrowLater)
    .Input("x: float")
    .Output("y: float")
    .Attr("elsewhere: bool")
    .Shape(UnchangedShape)
    .NotDifferentiable();
class ThrowLaterKernel : public AsyncKernel {
 public:
  explicit ThrowLaterKernel(KernelInit& init) { init.Attr("elsewhere", &elsewhere_); }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    if (!elsewhere_) throw std::bad_alloc();
    ctx.step().inter_op->Schedule([done = std::move(done)]() mutable { throw std::bad_alloc(); });
  }

 private:
  bool elsewhere_ = false;
};
MILLRACE_KERNEL(TestThrowLater, kCpu, ThrowLaterKernel);

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest()
      : graph_(std::make_unique<Graph>()), b_(graph_.get()), device_(NewCpuDevice({})), pool_("inter_op", 2) {
    x_ = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
  }

  std::unique_ptr<Plan> Compile(std::vector<Endpoint> fetches) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    PlanOptions options;
    options.feeds = {x_};
    options.fetches = std::move(fetches);
    options.device_of = [this](const Node&) { return device_.get(); };
    auto plan = Plan::Compile(std::move(graph_), options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : nullptr;
  }

  // `cause`: what the step was cancelled for; OK when it was not.
  StatusOr<Tensor> Run(Plan& plan, float x, StepArena* arena = nullptr, Status* cause = nullptr) {
    RefPtr<StepArena> own = MakeRef<StepArena>();
    CancellationManager cancellation;
    StepContext step;
    step.resources = &resources_;
    step.cancellation = &cancellation;
    step.inter_op = &pool_;
    const Tensor feed = Tensor::Scalar(x);
    Tensor result;
    const Status status = plan.Run(
        {.step = &step, .feeds = absl::MakeConstSpan(&feed, 1), .allocator = arena != nullptr ? arena : own.get()},
        absl::MakeSpan(&result, 1));
    if (cause != nullptr) *cause = cancellation.status();
    MR_RETURN_IF_ERROR(status);
    return result;
  }

  std::unique_ptr<Graph> graph_;
  GraphBuilder b_;
  std::unique_ptr<Device> device_;
  ThreadPool pool_;
  ResourceManager resources_;
  Endpoint x_;
};

TEST_F(ExecutorTest, MemoryThatRunsOutInAKernelFailsTheStepAndNamesTheNode) {
  for (const std::string where : {"compute", "piece", "length", "tensor"}) {
    SCOPED_TRACE(where);
    graph_ = std::make_unique<Graph>();
    b_ = GraphBuilder(graph_.get());
    x_ = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
    auto plan = Compile({b_.Op("TestThrow", {x_}, {{"where", where}}, "hungry")});
    const Status status = Run(*plan, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(status.message(), HasSubstr("{{node hungry}}"));
    EXPECT_THAT(status.message(), HasSubstr(where == "tensor" ? "4503599627370496 bytes" : ""));
  }
}

TEST_F(ExecutorTest, MemoryThatRunsOutInAnAsynchronousKernelFailsTheStepAndNamesTheNode) {
  for (const bool elsewhere : {false, true}) {
    SCOPED_TRACE(elsewhere);
    graph_ = std::make_unique<Graph>();
    b_ = GraphBuilder(graph_.get());
    x_ = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
    auto plan = Compile({b_.Op("TestThrowLater", {x_}, {{"elsewhere", elsewhere}}, "hungry")});
    const Status status = Run(*plan, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(status.message(), HasSubstr("{{node hungry}}"));
  }
}

TEST_F(ExecutorTest, PlansWithoutWaitingRunInOrderOnTheCallersThread) {
  Endpoint y = b_.Op("Square", {b_.Op("Neg", {x_})});
  auto plan = Compile({y});
  EXPECT_TRUE(plan->is_sequential());
  EXPECT_EQ(Run(*plan, 3)->scalar<float>(), 9);
}

TEST_F(ExecutorTest, AsynchronousKernelsFinishLater) {
  Endpoint sum = x_;
  for (int i = 0; i < 8; ++i) sum = b_.Add(sum, b_.Op("TestLater", {b_.Op("TestLater", {x_})}));
  auto plan = Compile({sum});
  EXPECT_FALSE(plan->is_sequential());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Run(*plan, 2)->scalar<float>(), 2 + 8 * 8);
}

TEST_F(ExecutorTest, ConcurrentRunsOfAnAsynchronousPlanDoNotMix) {
  Endpoint y = x_;
  for (int i = 0; i < 5; ++i) y = b_.Op("TestLater", {b_.Op("Neg", {y})});
  auto plan = Compile({y});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const float x = static_cast<float>(100 * t + i);
        EXPECT_EQ(Run(*plan, x)->scalar<float>(), -32 * x);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ExecutorTest, SeveralExpensiveKernelsAreSpreadOverThePool) {
  Endpoint sum = x_;
  for (int i = 0; i < 16; ++i) sum = b_.Add(sum, b_.Op("TestHeavy", {x_}));
  auto plan = Compile({sum});
  EXPECT_FALSE(plan->is_sequential());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Run(*plan, 1)->scalar<float>(), 33);
}

TEST_F(ExecutorTest, AFailureCancelsWhatWaitsAndIsWhatTheCallerGets) {
  Endpoint waits = b_.Op("TestForever", {x_}, {}, "waits");
  Endpoint fails = b_.Op("TestFail", {x_}, {{"message", "no more"}}, "fails");
  auto plan = Compile({b_.Add(waits, fails)});
  Status cause;
  auto result = Run(*plan, 1, nullptr, &cause);
  EXPECT_EQ(cause, result.status());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("no more"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("{{node fails}}"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("TestFail on /job:localhost"));
}

TEST_F(ExecutorTest, AFailureInALoopCancelsWhatWaitsThere) {
  Endpoint e = b_.Op("Enter", {x_}, {{"frame_name", "f"}});
  Endpoint waits = b_.Op("TestForever", {e}), fails = b_.Op("TestFail", {e}, {{"message", "inside"}}, "fails");
  auto plan = Compile({b_.Op("Exit", {b_.Add(waits, fails)})});
  EXPECT_TRUE(plan->is_framed());
  Status cause;
  auto result = Run(*plan, 1, nullptr, &cause);
  EXPECT_EQ(cause, result.status());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("{{node fails}}"));
}

TEST_F(ExecutorTest, ASteadyStepTakesNoNewMemory) {
  Endpoint y = x_;
  for (int i = 0; i < 20; ++i) y = b_.Add(b_.Op("Exp", {y}), b_.Op("Neg", {y}));
  auto plan = Compile({b_.Op("Tanh", {y})});
  RefPtr<StepArena> arena = MakeRef<StepArena>();
  ASSERT_TRUE(Run(*plan, 0.1f, arena.get()).ok());
  const size_t after_one = arena->bytes_reserved();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Run(*plan, 0.1f, arena.get()).ok());
  EXPECT_EQ(arena->bytes_reserved(), after_one);
  // Liveness, not the number of nodes, says how much that is.
  EXPECT_LE(after_one, 5 * 64u);
}

TEST_F(ExecutorTest, MemoryIsNotTakenFromAValueThatIsStillNeeded) {
  Endpoint a = b_.Op("Exp", {x_});
  Endpoint first = b_.Op("Neg", {a}), second = b_.Op("Square", {a});
  auto plan = Compile({b_.Add(b_.Mul(first, second), b_.Mul(a, a))});
  const float e = std::exp(1.5f);
  EXPECT_FLOAT_EQ(Run(*plan, 1.5f)->scalar<float>(), -e * e * e + e * e);
}

TEST(StepArenaTest, BuffersComeBackAndOutliveTheArenasOwner) {
  RefPtr<StepArena> arena = MakeRef<StepArena>();
  RefPtr<Buffer> a = arena->Allocate(1000);
  ASSERT_TRUE(a);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data()) % Buffer::kAlignment, 0u);
  EXPECT_EQ(a->size(), 1000u);
  void* memory = a->data();
  a.reset();
  RefPtr<Buffer> b = arena->Allocate(990);  // the same class of sizes
  EXPECT_EQ(b->data(), memory);
  RefPtr<Buffer> c = arena->Allocate(990);
  EXPECT_NE(c->data(), memory);
  arena.reset();
  std::memset(b->data(), 1, b->size());
  b.reset();
  c.reset();
}

TEST(StepArenaTest, AnImpossibleSizeGivesNothing) {
  RefPtr<StepArena> arena = MakeRef<StepArena>();
  EXPECT_FALSE(arena->Allocate(size_t{1} << 60));
  EXPECT_TRUE(arena->Allocate(0));
}

// Numbers that a TensorFlow task was seen to use for the same loops.
TEST(FrameIdTest, AgreesWithTensorFlow) {
  const uint64_t outer = ChildFrameId(0, 0, FrameNameHash("while/while_context"));
  EXPECT_EQ(outer, 18186195969791715286u);
  EXPECT_EQ(ChildFrameId(outer, 0, FrameNameHash("while/while/while_context")), 14089697833663469911u);
  EXPECT_EQ(ChildFrameId(outer, 1, FrameNameHash("while/while/while_context")), 14089697833663522132u);
  EXPECT_EQ(ChildFrameId(outer, 2, FrameNameHash("while/while/while_context")), 14089697833663521109u);
}

TEST_F(ExecutorTest, ALoopThatIsNotWellNestedIsRefused) {
  Endpoint e = b_.Op("Enter", {x_}, {{"frame_name", "f"}});
  Endpoint bad = b_.Op("AddV2", {e, x_}, {}, "bad");
  PlanOptions options;
  options.fetches = {bad};
  options.device_of = [this](const Node&) { return device_.get(); };
  auto plan = Plan::Compile(std::move(graph_), options);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("bad"));
}

}  // namespace
}  // namespace millrace
