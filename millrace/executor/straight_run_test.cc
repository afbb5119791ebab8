// Parts that receive from other parts: their values come late, in any order, dead or never.
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/executor/plan.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::string KeyOf(absl::string_view tensor) { return absl::StrCat("/there;0000000000000001;/here;", tensor, ";0:0"); }
std::string TensorOf(absl::string_view key) {
  key.remove_suffix(absl::string_view(";0:0").size());
  return std::string(key.substr(key.rfind(';') + 1));
}

// The rendezvous of one step, which notes what is asked of it and which test kernels ran.
class Journal : public LocalRendezvous {
 public:
  Status Send(absl::string_view key, RendezvousItem item) override {
    Note(absl::StrCat(item.is_dead ? "dead " : "sent ", TensorOf(key)));
    return LocalRendezvous::Send(key, std::move(item));
  }
  void Recv(absl::string_view key, Done done) override {
    Note(absl::StrCat("asked for ", TensorOf(key)));
    LocalRendezvous::Recv(key, std::move(done));
  }

  // From the other part.
  void Bring(absl::string_view tensor, float value) {
    ASSERT_TRUE(LocalRendezvous::Send(KeyOf(tensor), {Tensor::Scalar(value), false}).ok());
  }
  void BringDead(absl::string_view tensor) { ASSERT_TRUE(LocalRendezvous::Send(KeyOf(tensor), {Tensor(), true}).ok()); }

  void Note(std::string what) {
    MutexLock lock(&mu_);
    lines_.push_back(std::move(what));
    last_thread_ = std::this_thread::get_id();
  }
  std::vector<std::string> lines() const {
    MutexLock lock(&mu_);
    return lines_;
  }
  std::thread::id last_thread() const {
    MutexLock lock(&mu_);
    return last_thread_;
  }

 private:
  mutable Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
  std::thread::id last_thread_ ABSL_GUARDED_BY(mu_);
};

Journal& JournalOf(KernelContext& ctx) { return *static_cast<Journal*>(ctx.step().rendezvous); }

// Hands its input on and notes that it ran.
MILLRACE_OP(TestNote).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
class NoteKernel : public Kernel {
 public:
  explicit NoteKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    JournalOf(ctx).Note(ctx.node().name());
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }
};
MILLRACE_KERNEL(TestNote, kCpu, NoteKernel);

// Fails when its input is negative.
MILLRACE_OP(TestCheck).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
class CheckKernel : public Kernel {
 public:
  explicit CheckKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    if (ctx.input(0).scalar<float>() < 0) return OutOfRange("it is negative");
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }
};
MILLRACE_KERNEL(TestCheck, kCpu, CheckKernel);

// Takes as long as it takes the step's TestLetGo to run.
MILLRACE_OP(TestHold).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
MILLRACE_OP(TestLetGo).Input("x: float").Output("y: float").Shape(UnchangedShape).NotDifferentiable();
struct Hold {
  Notification began, may_end;
};
thread_local Hold* made_hold = nullptr;  // by the test that compiles the kernels
class HoldKernel : public Kernel {
 public:
  explicit HoldKernel(KernelInit&) : hold_(made_hold) {}
  bool is_expensive() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    hold_->began.Notify();
    hold_->may_end.Wait();
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }

 private:
  Hold* const hold_;
};
class LetGoKernel : public Kernel {
 public:
  explicit LetGoKernel(KernelInit&) : hold_(made_hold) {}
  Status Compute(KernelContext& ctx) override {
    hold_->may_end.Notify();
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }

 private:
  Hold* const hold_;
};
MILLRACE_KERNEL(TestHold, kCpu, HoldKernel);
MILLRACE_KERNEL(TestLetGo, kCpu, LetGoKernel);

class StraightRunTest : public ::testing::Test {
 protected:
  StraightRunTest()
      : graph_(std::make_unique<Graph>()), b_(graph_.get()), device_(NewCpuDevice({})), pool_("inter_op", 2) {
    x_ = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
  }

  AttrList EdgeAttrs(const std::string& tensor) {
    return {{"tensor_name", tensor},
            {"send_device", std::string("/there")},
            {"send_device_incarnation", int64_t{1}},
            {"recv_device", std::string("/here")}};
  }
  Endpoint Recv(const std::string& tensor) {
    AttrList attrs = EdgeAttrs(tensor);
    attrs.push_back({"tensor_type", DType::kFloat});
    return b_.Op("_Recv", {}, attrs, absl::StrCat("recv_", tensor));
  }
  void Send(const std::string& tensor, Endpoint value) { b_.AddNode("_Send", {value}, EdgeAttrs(tensor)); }
  Endpoint Note(const std::string& name, Endpoint value) { return b_.Op("TestNote", {value}, {}, name); }

  std::unique_ptr<Plan> Compile(std::vector<Endpoint> fetches) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    PlanOptions options;
    options.feeds = {x_};
    options.fetches = std::move(fetches);
    options.device_of = [this](const Node&) { return device_.get(); };
    auto plan = Plan::Compile(std::move(graph_), options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return nullptr;
    EXPECT_TRUE((*plan)->is_straight_line());
    EXPECT_FALSE((*plan)->is_framed());
    return *std::move(plan);
  }

  // One step of a plan with one fetch.
  struct Step {
    Step(StraightRunTest* test, Plan* plan, float x, StepStatsCollector* stats = nullptr) : feed(Tensor::Scalar(x)) {
      context.resources = &test->resources_;
      context.cancellation = &cancellation;
      context.inter_op = &test->pool_;
      context.rendezvous = &journal;
      // As a worker does.
      EXPECT_TRUE(cancellation.Register(cancellation.NewToken(), [this] { journal.Abort(cancellation.status()); }));
      args = {.step = &context, .feeds = absl::MakeConstSpan(&feed, 1), .allocator = arena.get(), .stats = stats};
      this->plan = plan;
    }
    void Start() {
      plan->RunAsync(args, absl::MakeSpan(&result, 1), [this](Status s) {
        status = std::move(s);
        ended.Notify();
      });
    }
    bool has_ended() const { return ended.HasBeenNotified(); }

    Plan* plan;
    Journal journal;
    CancellationManager cancellation;
    StepContext context;
    RefPtr<StepArena> arena = MakeRef<StepArena>();
    Tensor feed, result;
    RunArgs args;
    Status status;
    Notification ended;
  };

  std::unique_ptr<Graph> graph_;
  GraphBuilder b_;
  std::unique_ptr<Device> device_;
  ThreadPool pool_;
  ResourceManager resources_;
  Endpoint x_;
};

TEST_F(StraightRunTest, ALateValueSuspendsTheRunAndTheThreadThatBringsItGoesOn) {
  Endpoint y = Note("after", b_.Add(b_.Op("Neg", {Recv("a")}), x_));
  auto plan = Compile({y});
  for (int i = 0; i < 3; ++i) {
    Step step(this, plan.get(), 1);
    step.Start();
    EXPECT_FALSE(step.has_ended());
    EXPECT_THAT(step.journal.lines(), ElementsAre("asked for a"));
    std::thread::id who;
    std::thread([&] {
      who = std::this_thread::get_id();
      step.journal.Bring("a", 5);
      EXPECT_TRUE(step.has_ended());
    }).join();
    EXPECT_TRUE(step.status.ok()) << step.status;
    EXPECT_EQ(step.result.scalar<float>(), -4);
    EXPECT_EQ(step.journal.last_thread(), who);
  }
}

TEST_F(StraightRunTest, AValueThatIsThereDoesNotSuspend) {
  auto plan = Compile({b_.Add(Recv("a"), Recv("b"))});
  Step step(this, plan.get(), 1);
  step.journal.Bring("a", 5);
  step.journal.Bring("b", 6);
  step.Start();
  EXPECT_TRUE(step.has_ended());
  EXPECT_EQ(step.result.scalar<float>(), 11);
}

TEST_F(StraightRunTest, ReceivesAreAskedForBeforeAnythingElseRuns) {
  Endpoint first = Note("first", x_);
  Endpoint a = Note("takes_a", Recv("a")), b = Recv("b");
  auto plan = Compile({b_.Add(first, b_.Add(a, b))});
  Step step(this, plan.get(), 1);
  step.journal.Bring("a", 2);
  step.journal.Bring("b", 3);
  step.Start();
  const std::vector<std::string> lines = step.journal.lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(std::vector<std::string>(lines.begin(), lines.begin() + 2),
              UnorderedElementsAre("asked for a", "asked for b"));
  EXPECT_EQ(step.result.scalar<float>(), 6);
}

TEST_F(StraightRunTest, ValuesMayComeInAnyOrderAndWhatIsMadeOfThemGoesOutAtOnce) {
  Endpoint a = Recv("a"), b = Recv("b");
  Send("minus_a", b_.Op("Neg", {a}));
  Endpoint minus_b = b_.Op("Neg", {b});
  Endpoint later = Note("later", minus_b);
  Send("minus_b", minus_b);
  auto plan = Compile({b_.Add(a, later)});
  for (const bool b_first : {true, false}) {
    Step step(this, plan.get(), 1);
    step.Start();
    step.journal.Bring(b_first ? "b" : "a", 1);
    EXPECT_FALSE(step.has_ended());
    EXPECT_THAT(step.journal.lines(), Contains(b_first ? "sent minus_b" : "sent minus_a"));
    step.journal.Bring(b_first ? "a" : "b", 2);
    EXPECT_TRUE(step.has_ended());
    EXPECT_TRUE(step.status.ok()) << step.status;
    EXPECT_EQ(step.result.scalar<float>(), b_first ? 2 - 1 : 1 - 2);
    const std::vector<std::string> lines = step.journal.lines();
    const auto sent = std::find(lines.begin(), lines.end(), "sent minus_b");
    EXPECT_LT(sent - lines.begin(), std::find(lines.begin(), lines.end(), "later") - lines.begin());
  }
}

TEST_F(StraightRunTest, ADeadValueSpreadsAndSendsTellOfIt) {
  Endpoint a = Recv("a"), b = Recv("b");
  Endpoint uses_a = Note("uses_a", b_.Add(a, b));
  Send("of_a", uses_a);
  Send("of_b", Note("uses_b", b));
  b_.control_inputs = {uses_a.node};
  Endpoint after_a = Note("after_a", b);
  Node* const trigger = b_.AddNode("ControlTrigger", {});
  b_.control_inputs = {trigger};
  Endpoint after_trigger = Note("after_trigger", x_);
  b_.control_inputs.clear();
  Send("after", after_a);
  auto plan = Compile({after_trigger});
  for (int i = 0; i < 2; ++i) {
    Step step(this, plan.get(), 7);
    step.Start();
    step.journal.BringDead("a");
    step.journal.Bring("b", 2);
    ASSERT_TRUE(step.has_ended());
    EXPECT_TRUE(step.status.ok()) << step.status;
    EXPECT_EQ(step.result.scalar<float>(), 7);
    EXPECT_THAT(step.journal.lines(), UnorderedElementsAre("asked for a", "asked for b", "dead of_a", "dead after",
                                                           "uses_b", "sent of_b", "after_trigger"));
  }
  // The same plan, with nothing dead.
  Step step(this, plan.get(), 7);
  step.Start();
  step.journal.Bring("b", 2);
  step.journal.Bring("a", 2);
  ASSERT_TRUE(step.has_ended());
  EXPECT_THAT(step.journal.lines(), UnorderedElementsAre("asked for a", "asked for b", "uses_a", "sent of_a", "after_a",
                                                         "sent after", "uses_b", "sent of_b", "after_trigger"));
}

TEST_F(StraightRunTest, ADeadFetchIsAnErrorThatNamesIt) {
  auto plan = Compile({b_.Op("Neg", {Recv("a")}, {}, "fetched")});
  Step step(this, plan.get(), 7);
  step.Start();
  step.journal.BringDead("a");
  ASSERT_TRUE(step.has_ended());
  EXPECT_EQ(step.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(step.status.message()), HasSubstr("the fetched tensor fetched:0 is dead"));
  EXPECT_THAT(std::string(step.status.message()), HasSubstr("{{node fetched}}"));
  // The next run is not touched by it.
  Step next(this, plan.get(), 7);
  next.Start();
  next.journal.Bring("a", 1);
  EXPECT_TRUE(next.status.ok()) << next.status;
}

TEST_F(StraightRunTest, AnErrorEndsWhatIsSuspended) {
  Endpoint checked = b_.Op("TestCheck", {Recv("a")}, {}, "checks");
  Endpoint y = Note("never", b_.Add(checked, Recv("b")));
  auto plan = Compile({y});
  Step step(this, plan.get(), 1);
  step.Start();
  EXPECT_FALSE(step.has_ended());
  step.journal.Bring("a", -1);
  ASSERT_TRUE(step.has_ended());
  EXPECT_EQ(step.status.code(), absl::StatusCode::kOutOfRange) << step.status;
  EXPECT_THAT(std::string(step.status.message()), HasSubstr("{{node checks}}"));
  EXPECT_EQ(step.cancellation.status(), step.status);
  EXPECT_THAT(step.journal.lines(), Not(Contains("never")));
}

TEST_F(StraightRunTest, AReceiveThatFailsIsNamed) {
  auto plan = Compile({b_.Add(Recv("a"), Recv("b"))});
  Step step(this, plan.get(), 1);
  step.Start();
  step.journal.Bring("b", 1);
  step.journal.Abort(Unavailable("the other task is gone"));
  ASSERT_TRUE(step.has_ended());
  EXPECT_EQ(step.status.code(), absl::StatusCode::kUnavailable) << step.status;
  EXPECT_THAT(std::string(step.status.message()), HasSubstr("{{node recv_a}}"));
}

TEST_F(StraightRunTest, CancellationEndsWhatIsSuspended) {
  auto plan = Compile({Note("never", b_.Add(Recv("a"), Recv("b")))});
  Step step(this, plan.get(), 1);
  step.Start();
  step.journal.Bring("a", 1);
  EXPECT_FALSE(step.has_ended());
  step.cancellation.StartCancel(Cancelled("the client went away"));
  ASSERT_TRUE(step.has_ended());
  EXPECT_EQ(step.status.code(), absl::StatusCode::kCancelled) << step.status;
  EXPECT_THAT(std::string(step.status.message()), HasSubstr("the client went away"));
  EXPECT_THAT(step.journal.lines(), Not(Contains("never")));
  // And what is cancelled before it begins runs nothing.
  Step late(this, plan.get(), 1);
  late.cancellation.StartCancel(Cancelled("too late"));
  late.Start();
  ASSERT_TRUE(late.has_ended());
  EXPECT_THAT(std::string(late.status.message()), HasSubstr("too late"));
}

TEST_F(StraightRunTest, StatisticsHaveEveryNodeThatRan) {
  Endpoint sum = b_.Op("AddV2", {Recv("a"), b_.Const(Tensor::Scalar(1.f), "one")}, {}, "sum");
  Endpoint dead = b_.Op("Neg", {Recv("b")}, {}, "not_run");
  Send("dead", dead);
  auto plan = Compile({sum});
  StepStatsCollector stats;
  Step step(this, plan.get(), 1, &stats);
  step.Start();
  step.journal.BringDead("b");
  step.journal.Bring("a", 1);
  ASSERT_TRUE(step.has_ended());
  EXPECT_TRUE(step.status.ok()) << step.status;
  pb::StepStats proto;
  stats.ToProto(&proto);
  ASSERT_EQ(proto.dev_stats_size(), 1);
  std::vector<std::string> names;
  for (const auto& node : proto.dev_stats(0).node_stats()) names.push_back(node.node_name());
  EXPECT_THAT(names, UnorderedElementsAre("recv_a", "recv_b", "one", "sum"));
}

TEST_F(StraightRunTest, WhatArrivesDuringALongKernelIsWorkedOnMeanwhile) {
  Hold hold;
  made_hold = &hold;
  Endpoint long_one = b_.Op("TestHold", {x_});
  Endpoint short_one = b_.Op("TestLetGo", {Recv("a")});
  auto plan = Compile({b_.Add(long_one, short_one)});
  Step step(this, plan.get(), 1);
  std::thread starts([&] { step.Start(); });
  hold.began.Wait();
  step.journal.Bring("a", 2);  // lets the long one end
  starts.join();
  step.ended.Wait();
  EXPECT_TRUE(step.status.ok()) << step.status;
  EXPECT_EQ(step.result.scalar<float>(), 3);
}

TEST_F(StraightRunTest, RunsAtTheSameTimeDoNotMix) {
  Endpoint sum = x_;
  for (int i = 0; i < 6; ++i) {
    Endpoint in = Recv(absl::StrCat("in", i));
    Endpoint out = b_.Op("Square", {b_.Op("Neg", {in})});
    Send(absl::StrCat("out", i), out);
    sum = b_.Add(sum, out);
  }
  auto plan = Compile({sum});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const int x = 1000 * t + i;
        Step step(this, plan.get(), static_cast<float>(x));
        // Three of the values come from another thread, in another order, while this one starts the step.
        std::thread other([&] {
          for (const int k : {4, 2, 0}) step.journal.Bring(absl::StrCat("in", k), static_cast<float>(k));
        });
        const bool one_is_dead = i % 5 == 4;
        if (i % 2 == 0) step.Start();
        step.journal.Bring("in1", 1);
        if (one_is_dead) {
          step.journal.BringDead("in3");
        } else {
          step.journal.Bring("in3", 3);
        }
        if (i % 2 == 1) step.Start();
        step.journal.Bring("in5", 5);
        other.join();
        step.ended.Wait();
        if (one_is_dead) {
          EXPECT_EQ(step.status.code(), absl::StatusCode::kInternal);
          EXPECT_THAT(step.journal.lines(), Contains("dead out3"));
        } else {
          ASSERT_TRUE(step.status.ok()) << step.status;
          EXPECT_EQ(step.result.scalar<float>(), static_cast<float>(x + 1 + 4 + 9 + 16 + 25));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace millrace
