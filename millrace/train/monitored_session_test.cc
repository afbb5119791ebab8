#include "millrace/train/monitored_session.h"

#include "millrace/train/global_step.h"
#include "millrace/train/hooks/hooked_run.h"
#include "millrace/train/queue_runner.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MonitoredSession, InitialisesRunsAndStops) {
  CountingModel model;
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {StopAt(5)}}).value();
  int runs = 0;
  while (!session->ShouldStop()) {
    ASSERT_EQ(session->Run(model.train), absl::OkStatus());
    ++runs;
  }
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(session->raw_session()->Run({model.w}).value()[0].scalar<float>(), 5);
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_EQ(session->raw_session(), nullptr);
  EXPECT_THAT(session->Run(model.train).message(), HasSubstr("closed"));
}

TEST(MonitoredSession, AStepTakesFeedsInItsOrder) {
  CountingModel model;
  const Output x = ops::Placeholder(model.scope, DType::kFloat), y = ops::Placeholder(model.scope, DType::kFloat);
  const Output difference = x - y;
  auto session = MonitoredTrainingSession(model.scope).value();
  MonitoredStep step = session->MakeStep({y, x}, {difference}, {model.train}).value();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(step({Tensor::Scalar(1.0f), Tensor::Scalar(3.0f)}).value()[0].scalar<float>(), 2);
  EXPECT_EQ(session->Run({model.w}).value()[0].scalar<float>(), 3);
  EXPECT_EQ(
      session->Run({{x, Tensor::Scalar(5.0f)}, {y, Tensor::Scalar(1.0f)}}, {difference}).value()[0].scalar<float>(), 4);
  EXPECT_THAT(step({Tensor::Scalar(1.0f)}).status().message(), HasSubstr("takes 2 feeds; it was given 1"));
}

TEST(MonitoredSession, HooksSeeARunInOrderAndGetWhatTheyFetch) {
  CountingModel model;
  auto hook = std::make_shared<RecordingHook>();
  hook->fetches = {model.w, model.w};
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_EQ(session->Run({model.w}).value().size(), 1);
  ASSERT_EQ(hook->results.size(), 2);
  EXPECT_EQ(hook->results[1].scalar<float>(), 1);
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_THAT(hook->seen, ElementsAre("begin", "created", "before", "after", "before", "after", "end"));
}

TEST(MonitoredSession, AStepIsCompiledOnceForEachSetOfHookFetches) {
  CountingModel model;
  Hooks hooks = {std::make_shared<RecordingHook>()};
  auto* const hook = static_cast<RecordingHook*>(hooks[0].get());
  const Operation init = GlobalVariablesInitializer(model.scope);
  ClientSession session = ClientSession::Create(model.scope).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  HookedSignature signature({}, {model.w}, {});
  Tensors results;
  for (int i = 0; i < 10; ++i) {
    hook->fetches = i % 2 == 0 ? std::vector<Output>{} : std::vector<Output>{model.global_step};
    HookedSignature::Call call{.session = &session, .hooks = &hooks};
    ASSERT_EQ(signature.Run({}, &call, &results), absl::OkStatus());
    EXPECT_EQ(results.size(), 1);
  }
  EXPECT_EQ(signature.variants(), 2);
}

TEST(MonitoredSession, TwoFeedsOfOneTensorAreNamed) {
  CountingModel model;
  const Output x = ops::Placeholder(model.scope.WithOpName("x"), DType::kFloat);
  const Output y = x + 1.0f;
  auto hook = std::make_shared<FeedFnHook>([&]() -> StatusOr<ClientSession::Feeds> {
    return ClientSession::Feeds{{x, Tensor::Scalar(1.0f)}};
  });
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  EXPECT_EQ(session->Run({y}).value()[0].scalar<float>(), 2);
  EXPECT_THAT(session->Run({{x, Tensor::Scalar(2.0f)}}, {y}).status().message(),
              HasSubstr("x:0 is fed by a hook and by the caller"));
}

TEST(MonitoredSession, AHooksErrorIsTheRunsAndNoGoodEnd) {
  CountingModel model;
  auto hook = std::make_shared<RecordingHook>();
  hook->fail_at = "after";
  hook->failure = Internal("not amused");
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  EXPECT_THAT(session->Run(model.train).message(), HasSubstr("not amused"));
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_THAT(hook->seen, ElementsAre("begin", "created", "before", "after"));
}

TEST(MonitoredSession, ARunAfterTheStopIsAnErrorThatSaysSo) {
  CountingModel model;
  auto session = MonitoredTrainingSession(model.scope).value();
  session->RequestStop();
  EXPECT_TRUE(session->ShouldStop());
  const Status status = session->Run(model.train);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("ShouldStop"));
  EXPECT_EQ(session->Close(), absl::OkStatus());
}

TEST(MonitoredSession, TheEndOfTheInputIsAGoodEnd) {
  CountingModel model;
  const Output queue = ops::FIFOQueueV2(model.scope, {DType::kFloat});
  const Operation close = ops::QueueCloseV2(model.scope, queue);
  const Output next = ops::QueueDequeueV2(model.scope, queue, {DType::kFloat})[0];
  auto hook = std::make_shared<RecordingHook>();
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  ASSERT_EQ(session->Run(close), absl::OkStatus());
  EXPECT_FALSE(session->ShouldStop());
  EXPECT_TRUE(absl::IsOutOfRange(session->Run({next}).status()));
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_EQ(hook->seen.back(), "end");
}

// A queue runner that fails after three elements, while the training waits for a fourth that never comes.
struct FailingInput {
  CountingModel model;
  Output next;
  FailingInput() {
    const Scope& scope = model.scope;
    const Output queue = ops::FIFOQueueV2(scope, {DType::kFloat});
    const Var counter(scope, "counter", 0.0f);
    const Output now = counter.Read(scope.WithControlDependencies({counter.AssignAdd(scope, 1.0f)}));
    const Operation check = ops::Assert(scope, ops::LessEqual(scope, now, 3.0f), {now});
    AddQueueRunner(
        scope,
        QueueRunner({.name = "input",
                     .enqueue_ops = {ops::QueueEnqueueV2(scope.WithControlDependencies({check}), queue, {now})}}));
    next = ops::QueueDequeueV2(scope, queue, {DType::kFloat})[0];
  }
};

TEST(MonitoredSession, AnErrorOfAQueueRunnerEndsTheTrainingOnce) {
  FailingInput input;
  auto hook = std::make_shared<RecordingHook>();
  auto session = MonitoredTrainingSession(input.model.scope, {.hooks = {hook}}).value();
  Status status;
  int runs = 0;
  while (!session->ShouldStop()) {
    status = session->Run({input.next}).status();
    if (!status.ok()) break;
    ++runs;
  }
  if (status.ok()) {
    status = session->Close();  // it failed between two runs
  } else {
    EXPECT_TRUE(session->ShouldStop());
    EXPECT_EQ(session->Close(), absl::OkStatus());
  }
  EXPECT_LE(runs, 3);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("input: "));
  EXPECT_NE(hook->seen.back(), "end");
}

// Every run fails with `failure` until so many sessions have been lost.
class LosesSessions : public SessionRunHook {
 public:
  explicit LosesSessions(int losses, Status failure = Unavailable("ps/0 is gone"))
      : losses_(losses), failure_(std::move(failure)) {}
  Status AfterCreateSession(ClientSession*, Coordinator*) override {
    ++created;
    return absl::OkStatus();
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext*) override {
    if (created <= losses_) return failure_;
    return SessionRunArgs();
  }
  int created = 0;

 private:
  const int losses_;
  const Status failure_;
};

TEST(MonitoredSession, ALostSessionIsMadeAnewAndTheRunRepeated) {
  for (const Status& failure : {Unavailable("ps/0 is gone"), Aborted("ps/0 was restarted")}) {
    CountingModel model;
    auto loses = std::make_shared<LosesSessions>(3, failure);
    auto session = MonitoredTrainingSession(model.scope, {.hooks = {loses}}).value();
    MonitoredStep step = session->MakeStep({}, {model.w}, {model.train}).value();
    EXPECT_EQ(step().status(), absl::OkStatus());
    EXPECT_EQ(session->sessions_made(), 4);
    EXPECT_EQ(session->Close(), absl::OkStatus());
  }
}

TEST(MonitoredSession, ALossThatNewSessionsDoNotMendIsGivenUpAfterTheTime) {
  CountingModel model;
  VirtualClock clock;
  auto session =
      MonitoredTrainingSession(model.scope,
                               {.hooks = {std::make_shared<LosesSessions>(1000000)},
                                .max_wait = absl::Seconds(60),
                                .wait = {.clock = &clock, .pause = [&](absl::Duration time) { clock.Advance(time); }}})
          .value();
  const Status status = session->Run(model.train);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("ps/0 is gone (new sessions have not helped for"));
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_LT(session->sessions_made(), 200);
  EXPECT_EQ(session->Close(), absl::OkStatus());
}

TEST(MonitoredSession, AThreadThatLostTheSessionMakesANewOneToo) {
  CountingModel model;
  class Thread : public SessionRunHook {
   public:
    Status AfterCreateSession(ClientSession*, Coordinator* coordinator) override {
      if (++created > 1) return absl::OkStatus();
      return coordinator->Start("updates", [] { return Unavailable("ps/0 is gone"); });
    }
    int created = 0;
  };
  auto hook = std::make_shared<Thread>();
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  EXPECT_TRUE(session->coordinator()->WaitForStop());
  EXPECT_FALSE(session->ShouldStop());
  EXPECT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_EQ(hook->created, 2);
  EXPECT_EQ(session->Close(), absl::OkStatus());
}

TEST(MonitoredSession, OtherErrorsLoseNoSession) {
  CountingModel model;
  auto session = MonitoredTrainingSession(
                     model.scope, {.hooks = {std::make_shared<LosesSessions>(1, InvalidArgument("a bad feed"))}})
                     .value();
  EXPECT_TRUE(absl::IsInvalidArgument(session->Run(model.train)));
  EXPECT_EQ(session->sessions_made(), 1);
  EXPECT_FALSE(session->ShouldStop());
}

TEST(MonitoredSession, NullHooksAndBrokenGraphsAreErrors) {
  CountingModel model;
  EXPECT_THAT(MonitoredTrainingSession(model.scope, {.hooks = {nullptr}}).status().message(), HasSubstr("null"));
  const Output bad = ops::MatMul(model.scope, model.w, model.w);
  EXPECT_FALSE(MonitoredTrainingSession(model.scope).ok());
}

TEST(MonitoredSession, WhatIsNotInitialisedIsNamed) {
  CountingModel model;
  auto scaffold = std::make_shared<Scaffold>(Scaffold{.init_op = model.w.initializer()});
  const Status status = MonitoredTrainingSession(model.scope, {.scaffold = scaffold}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("still no value for global_step"));
}

}  // namespace
}  // namespace millrace
