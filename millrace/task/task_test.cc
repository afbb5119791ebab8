#include "millrace/task/task.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/task/local_devices.h"
#include "millrace/task/partial_step_run.h"
#include "millrace/task/step_signature.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A graph under construction and a task that runs what is asked of it by name.
class TaskTest : public ::testing::Test {
 protected:
  TaskTest()
      : task_(std::make_shared<Task>(TaskOptions{.name = "/job:test/replica:0/task:3", .inter_op_threads = 2})) {}
  ~TaskTest() override { Close(); }

  CompiledPart Compile(const std::shared_ptr<TaskSession>& session, const CallableSpec& spec) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    std::unique_ptr<Graph> graph = graph_.Clone();
    PassContext signature = ResolveSignature(graph.get(), spec).value();
    StatusOr<CompiledPart> part = task_->Compile(session, std::move(graph), std::move(signature));
    EXPECT_TRUE(part.ok()) << part.status();
    return *std::move(part);
  }
  StatusOr<Tensor> Fetch(const CompiledPart& part, absl::Span<const Tensor> feeds = {}, const StepLimits& limits = {}) {
    Tensor result;
    MR_RETURN_IF_ERROR(task_->Run(part, {.feeds = feeds}, limits, absl::MakeSpan(&result, 1)));
    return result;
  }
  void Close() {
    Notification idle;
    task_->Close(Cancelled("the test is over"), Cancelled("closed"), [&] { idle.Notify(); });
    idle.Wait();
  }
  // A step that blocks until it is cancelled.
  void AddBlockedOp() {
    const AttrList types = {{"component_types", std::vector<DType>{DType::kFloat}}};
    b_.Op("QueueDequeueV2", {b_.Op("FIFOQueueV2", {}, types, "queue")}, types, "take");
  }
  void AddVariable() {
    const AttrList attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}};
    const Endpoint v = b_.Op("VariableV2", {}, attrs, "v");
    b_.Op("Assign", {v, b_.Scalar(5.0f)}, {}, "set");
    b_.Op("AssignAdd", {v, b_.Scalar(1.0f)}, {}, "add");
  }
  void AwaitRunning(size_t count) {
    Notification never;
    while (task_->ListRunning().size() != count) never.WaitFor(absl::Milliseconds(1));
  }

  Graph graph_;
  GraphBuilder b_{&graph_};
  const std::shared_ptr<Task> task_;
};

TEST_F(TaskTest, CompilesAPartAndRunsItOnTheCallersThread) {
  const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}}, "x");
  b_.Op("Square", {x}, {}, "y");
  const CompiledPart part = Compile(task_->NewSession(), {.feeds = {"x:0"}, .fetches = {"y:0"}});
  EXPECT_EQ(part.plan->graph().FindNode("y")->assigned_device(), "/job:test/replica:0/task:3/device:CPU:0");
  for (const float value : {2.0f, 3.0f}) {
    const StatusOr<Tensor> y = Fetch(part, {Tensor::Scalar(value)});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ(y->scalar<float>(), value * value);
  }
  EXPECT_THAT(task_->ListRunning(), IsEmpty());
}

TEST_F(TaskTest, StateOutlivesSessionsAndAnIsolatedSessionHasItsOwn) {
  AddVariable();
  {
    const auto first = task_->NewSession();
    ASSERT_TRUE(Fetch(Compile(first, {.fetches = {"set:0"}})).ok());
  }
  const auto second = task_->NewSession();
  EXPECT_EQ(Fetch(Compile(second, {.fetches = {"add:0"}}))->scalar<float>(), 6);
  const auto isolated = task_->NewSession({.resources = std::make_shared<ResourceManager>()});
  EXPECT_EQ(Fetch(Compile(isolated, {.fetches = {"add:0"}})).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TaskTest, KernelsWithStateAreTheSessionsAndGoOnAcrossParts) {
  const Endpoint shape = b_.Ints({2});
  const Endpoint random = b_.Op("RandomUniform", {shape},
                                {{"dtype", DType::kFloat}, {"seed", int64_t{7}}, {"seed2", int64_t{9}}}, "random");
  b_.Op("Identity", {random}, {}, "same");
  const auto values = [](const StatusOr<Tensor>& t) {
    return std::vector<float>{t->flat<float>()[0], t->flat<float>()[1]};
  };
  const auto one = task_->NewSession();
  const std::vector<float> first = values(Fetch(Compile(one, {.fetches = {"random:0"}})));
  const std::vector<float> second = values(Fetch(Compile(one, {.fetches = {"same:0"}})));
  EXPECT_NE(first, second);
  const auto other = task_->NewSession();
  EXPECT_EQ(values(Fetch(Compile(other, {.fetches = {"same:0"}}))), first);
}

TEST_F(TaskTest, ASessionGetsNoMoreMemoryThanItsLimit) {
  const auto fill = [&](int64_t elements, const char* name) {
    // Not a constant, so that it is not folded when the part is compiled.
    const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}},
                             absl::StrCat("x_", name));
    b_.Op("Fill", {b_.Ints({static_cast<int32_t>(elements)}), x}, {}, name);
  };
  fill(1 << 20, "large");
  fill(1 << 10, "small");
  const Tensor feed = Tensor::Scalar(1.0f);
  const auto limited = task_->NewSession({.handle = "s1", .memory_limit = 1 << 20});
  const CompiledPart large = Compile(limited, {.feeds = {"x_large:0"}, .fetches = {"large:0"}});
  const CompiledPart small = Compile(limited, {.feeds = {"x_small:0"}, .fetches = {"small:0"}});
  const Status status = Fetch(large, {feed}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(), HasSubstr("{{node large}}"));
  EXPECT_THAT(status.message(), HasSubstr("4194304 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("session s1 uses 0 of the 1048576 bytes that it may have"));
  // What fits goes on, over and over: what steps leave to later ones does not add up.
  std::vector<Tensor> kept;
  for (int i = 0; i < 300; ++i) {
    const StatusOr<Tensor> y = Fetch(small, {feed});
    ASSERT_TRUE(y.ok()) << y.status();
  }
  EXPECT_GT(limited->memory()->used(), 0u);
  // Another session has its own.
  const auto other = task_->NewSession({.handle = "s2"});
  EXPECT_TRUE(Fetch(Compile(other, {.feeds = {"x_large:0"}, .fetches = {"large:0"}}), {feed}).ok());
  EXPECT_LT(limited->memory()->used(), size_t{1} << 20);
}

TEST_F(TaskTest, MemoryThatOneStepLeavesToTheNextIsGivenUpWhenAnotherSizeNeedsIt) {
  const Endpoint n = b_.Op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape(Shape({1}))}}, "n");
  b_.Op("Fill", {n, b_.Scalar(1.0f)}, {}, "y");
  const auto session = task_->NewSession({.memory_limit = 1 << 20});
  const CompiledPart part = Compile(session, {.feeds = {"n:0"}, .fetches = {"y:0"}});
  // Each alone fits, all together do not.
  for (const int32_t elements : {100000, 120000, 140000, 160000, 180000, 100000}) {
    const StatusOr<Tensor> y = Fetch(part, {Tensor::Of<int32_t>({elements})});
    ASSERT_TRUE(y.ok()) << elements << ": " << y.status();
  }
}

TEST_F(TaskTest, CloseCancelsRunningPartsAndRefusesLaterOnes) {
  AddBlockedOp();
  const CompiledPart part = Compile(task_->NewSession({.handle = "s"}), {.fetches = {"take:0"}});
  Status inline_status;
  std::thread caller([&] { inline_status = Fetch(part).status(); });
  // The other kind of run: asynchronous, and part of a step whose cancellation it shares.
  auto cancellation = std::make_shared<CancellationManager>();
  std::vector<Tensor> fetched(1);
  Notification ended;
  Status async_status;
  task_->RunAsync(part, {.step_id = 77, .cancellation = cancellation.get(), .owner = cancellation},
                  absl::MakeSpan(fetched), [&](Status status) {
                    async_status = std::move(status);
                    ended.Notify();
                  });
  AwaitRunning(2);
  for (const RunningPart& running : task_->ListRunning()) EXPECT_EQ(running.session, "s");
  Notification idle;
  task_->Close(Unavailable("going down"), Cancelled("told to stop"), [&] { idle.Notify(); });
  idle.Wait();
  caller.join();
  ended.Wait();
  EXPECT_EQ(inline_status.code(), absl::StatusCode::kCancelled) << inline_status;
  EXPECT_EQ(async_status.code(), absl::StatusCode::kCancelled) << async_status;
  EXPECT_THAT(cancellation->status().message(), HasSubstr("told to stop"));
  EXPECT_THAT(task_->ListRunning(), IsEmpty());
  EXPECT_EQ(Fetch(part).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TaskTest, ATaskIsIdleOnlyWhenTheLastRunsCallerKnowsOfItsEnd) {
  AddBlockedOp();
  const CompiledPart part = Compile(task_->NewSession(), {.fetches = {"take:0"}});
  std::vector<Tensor> fetched(1);
  bool told = false, told_before_idle = false, listed = true;
  task_->RunAsync(part, {}, absl::MakeSpan(fetched), [&](const Status&) {
    listed = task_->is_running();
    told = true;
  });
  Notification idle;
  task_->Close(Cancelled("closed"), Cancelled("closed"), [&] {
    told_before_idle = told;
    idle.Notify();
  });
  idle.Wait();
  EXPECT_TRUE(told_before_idle);
  EXPECT_FALSE(listed);
}

TEST_F(TaskTest, LimitsEndAStep) {
  AddBlockedOp();
  const CompiledPart part = Compile(task_->NewSession(), {.fetches = {"take:0"}});
  const Status late = Fetch(part, {}, {.timeout = absl::Milliseconds(20)}).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_THAT(late.message(), HasSubstr("take"));
  CancellationManager caller;
  caller.StartCancel(Cancelled("not any more"));
  EXPECT_THAT(Fetch(part, {}, {.cancellation = &caller}).status().message(), HasSubstr("not any more"));
}

TEST_F(TaskTest, AFailedRunLeavesNothingForTheNext) {
  const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape(Shape())}}, "x");
  b_.Op("Div", {b_.Scalar<int32_t>(6), x}, {}, "y");
  const CompiledPart part = Compile(task_->NewSession(), {.feeds = {"x:0"}, .fetches = {"y:0"}});
  EXPECT_FALSE(Fetch(part, {Tensor::Scalar<int32_t>(0)}).ok());
  const StatusOr<Tensor> y = Fetch(part, {Tensor::Scalar<int32_t>(2)});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->scalar<int32_t>(), 3);
}

class PartialStepTest : public TaskTest {
 protected:
  std::shared_ptr<PartialStepRun> Start() {
    const auto placeholder = [&](const char* name) {
      return b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}}, name);
    };
    const Endpoint sum = b_.Op("AddV2", {placeholder("a"), b_.Scalar(1.0f)}, {}, "sum");
    b_.Op("Mul", {sum, placeholder("c")}, {}, "product");
    const CallableSpec spec{.feeds = {"a:0", "c:0"}, .fetches = {"sum:0", "product:0"}};
    StatusOr<std::shared_ptr<PartialStepRun>> step =
        StartPartialStep(task_, task_->NewSession(), graph_.Clone(), spec, {});
    EXPECT_TRUE(step.ok()) << step.status();
    return *std::move(step);
  }
  struct Result {
    StatusOr<std::vector<Tensor>> fetched;
    bool over = false;
  };
  static Result Call(PartialStepRun& step, const std::vector<Feed>& feeds, std::vector<std::string> fetches) {
    Result result;
    Notification done;
    step.Call(feeds, std::move(fetches), nullptr, nullptr, [&](StatusOr<std::vector<Tensor>> fetched, bool over) {
      result = {std::move(fetched), over};
      done.Notify();
    });
    done.Wait();
    return result;
  }
};

TEST_F(PartialStepTest, FeedsAndFetchesInSeveralCalls) {
  const auto step = Start();
  const Result early = Call(*step, {}, {"sum:0"});
  EXPECT_EQ(early.fetched.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(early.over);
  const Result first = Call(*step, {{"a:0", Tensor::Scalar(2.0f)}}, {"sum:0"});
  ASSERT_TRUE(first.fetched.ok()) << first.fetched.status();
  EXPECT_EQ((*first.fetched)[0].scalar<float>(), 3);
  EXPECT_FALSE(first.over);
  const Result last = Call(*step, {{"c:0", Tensor::Scalar(5.0f)}}, {"product:0"});
  ASSERT_TRUE(last.fetched.ok()) << last.fetched.status();
  EXPECT_EQ((*last.fetched)[0].scalar<float>(), 15);
  EXPECT_TRUE(last.over);
  EXPECT_THAT(task_->ListRunning(), IsEmpty());
}

TEST_F(PartialStepTest, ClosingTheTaskEndsItAndWhoeverWaitsForIt) {
  const auto step = Start();
  EXPECT_THAT(task_->ListRunning(), SizeIs(1));
  Close();
  Notification ended;
  Status status;
  step->WhenEnded([&](Status how) {
    status = std::move(how);
    ended.Notify();
  });
  ended.Wait();
  EXPECT_FALSE(status.ok());
  const Result after = Call(*step, {{"a:0", Tensor::Scalar(2.0f)}}, {"sum:0"});
  EXPECT_FALSE(after.fetched.ok());
  EXPECT_TRUE(after.over);
}

TEST_F(PartialStepTest, ACallThatIsGivenUpEndsTheStep) {
  const auto step = Start();
  CancellationManager caller;
  Notification done;
  bool over = false;
  ASSERT_TRUE(Call(*step, {{"a:0", Tensor::Scalar(2.0f)}}, {"sum:0"}).fetched.ok());
  caller.StartCancel(Cancelled("gone"));
  step->Call(std::vector<Feed>{{"c:0", Tensor::Scalar(1.0f)}}, {"product:0"}, &caller, nullptr,
             [&](const StatusOr<std::vector<Tensor>>&, bool ended) {
               over = ended;
               done.Notify();
             });
  done.Wait();
  EXPECT_TRUE(over);
  Notification ended;
  step->WhenEnded([&](const Status&) { ended.Notify(); });
  ended.Wait();
}

TEST(LocalDevicesTest, CpusShareOnePoolAndBearTheTasksName) {
  const auto devices =
      LocalDevices({.task = "/job:a/replica:0/task:1", .cpu_devices = 2, .gpu_devices = 0, .intra_op_threads = 3})
          .value();
  ASSERT_THAT(devices, SizeIs(2));
  EXPECT_EQ(devices[1]->name(), "/job:a/replica:0/task:1/device:CPU:1");
  EXPECT_EQ(devices[0]->intra_op_pool(), devices[1]->intra_op_pool());
  EXPECT_EQ(devices[0]->intra_op_pool()->num_threads(), 2);
}

}  // namespace
}  // namespace millrace
