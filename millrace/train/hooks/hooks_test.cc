#include "millrace/train/hooks/hooks.h"

#include <cmath>

#include "millrace/train/global_step.h"
#include "millrace/train/hooks/step_counter_hook.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs `op` until the stop, at most 100 times. Returns how often.
int RunToTheEnd(MonitoredSession* session, const Operation& op) {
  int runs = 0;
  while (!session->ShouldStop() && runs < 100) {
    EXPECT_EQ(session->Run(op), absl::OkStatus());
    ++runs;
  }
  return runs;
}

Status BeginStatus(const Scope& scope, SessionRunHook&& hook) { return hook.Begin(scope); }

TEST(StopAtStepHook, CountsFromWhereTheTrainingBegins) {
  CountingModel model;
  auto scaffold = std::make_shared<Scaffold>();
  const Operation at_seven = model.global_step.Assign(model.scope, int64_t{7});
  scaffold->init_fn = [&](ClientSession* session) { return session->Run(at_seven); };
  auto session = MonitoredTrainingSession(
                     model.scope, {.scaffold = scaffold,
                                   .hooks = {std::make_shared<StopAtStepHook>(StopAtStepOptions{.num_steps = 3})}})
                     .value();
  EXPECT_EQ(RunToTheEnd(session.get(), model.train), 3);
  EXPECT_EQ(ReadGlobalStep(session->raw_session(), model.global_step).value(), 10);
}

TEST(StopAtStepHook, StopsAfterARunThatFindsTheStepReached) {
  CountingModel model;
  const Operation jump = model.global_step.Assign(model.scope, int64_t{50});
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {StopAt(10)}}).value();
  ASSERT_EQ(session->Run(jump), absl::OkStatus());
  // Other workers went beyond it.
  EXPECT_LE(RunToTheEnd(session.get(), model.train), 1);
}

TEST(StopAtStepHook, MisuseIsNamed) {
  CountingModel model;
  EXPECT_THAT(BeginStatus(model.scope, StopAtStepHook({})).message(), HasSubstr("one of num_steps and last_step"));
  EXPECT_THAT(BeginStatus(model.scope, StopAtStepHook({.num_steps = 1, .last_step = 1})).message(),
              HasSubstr("one of num_steps and last_step"));
  const Status status = BeginStatus(Scope::NewRoot(), StopAtStepHook({.last_step = 1}));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("GlobalStep(scope)"));
}

TEST(LoggingTensorHook, LogsTheFirstRunEveryNthAndTheEnd) {
  CountingModel model;
  std::vector<std::string> lines;
  auto hook = std::make_shared<LoggingTensorHook>(LoggingTensorOptions{
      .tensors = {{"steps", model.w}},
      .every_runs = 3,
      .at_end = true,
      .formatter =
          [](const auto& named) { return absl::StrCat(named[0].first, ":", named[0].second.template scalar<float>()); },
      .sink = [&](const std::string& line) { lines.push_back(line); }});
  const Operation nothing = ops::NoOp(model.scope);
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  for (int i = 0; i < 7; ++i) ASSERT_EQ(session->Run(nothing), absl::OkStatus());
  EXPECT_EQ(lines.size(), 3);
  ASSERT_EQ(session->Close(), absl::OkStatus());
  EXPECT_THAT(lines, ElementsAre("steps:0", "steps:0", "steps:0", "steps:0"));
}

TEST(LoggingTensorHook, LogsByTimeWithNamesAndNumbers) {
  CountingModel model;
  VirtualClock clock;
  std::vector<std::string> lines;
  LoggingTensorHook hook({.tensors = {{"", model.w}, {"step", model.global_step}},
                          .every = absl::Seconds(10),
                          .sink = [&](const std::string& line) { lines.push_back(line); },
                          .clock = &clock});
  ASSERT_EQ(hook.Begin(model.scope), absl::OkStatus());
  for (int i = 0; i < 25; ++i) {
    SessionRunContext context;
    const SessionRunArgs args = hook.BeforeRun(&context).value();
    SessionRunValues values;
    if (!args.fetches.empty()) values.results = {Tensor::Scalar(0.5f), Tensor::Scalar(int64_t{i})};
    ASSERT_EQ(hook.AfterRun(&context, values), absl::OkStatus());
    clock.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(lines, ElementsAre(absl::StrCat(model.w.name(), " = 0.5, step = 0"),
                                 absl::StrCat(model.w.name(), " = 0.5, step = 10 (10 s)"),
                                 absl::StrCat(model.w.name(), " = 0.5, step = 20 (10 s)")));
}

TEST(LoggingTensorHook, MisuseIsNamed) {
  CountingModel model;
  EXPECT_THAT(BeginStatus(model.scope, LoggingTensorHook({.tensors = {{"w", model.w}}})).message(),
              HasSubstr("every_runs, every or at_end"));
  EXPECT_THAT(BeginStatus(model.scope,
                          LoggingTensorHook({.tensors = {{"w", model.w}}, .every_runs = 1, .every = absl::Seconds(1)}))
                  .message(),
              HasSubstr("not both"));
  EXPECT_THAT(BeginStatus(model.scope, LoggingTensorHook({.tensors = {{"w", model.w}}, .every_runs = 0})).message(),
              HasSubstr("every 0 steps"));
  EXPECT_THAT(BeginStatus(model.scope, LoggingTensorHook({.tensors = {{"w", Output()}}, .every_runs = 1})).message(),
              HasSubstr("'w'"));
  EXPECT_THAT(BeginStatus(model.scope, LoggingTensorHook({.every_runs = 1})).message(), HasSubstr("no tensors"));
}

TEST(NanTensorHook, FailsOrStopsWhenTheLossIsNotANumber) {
  for (const bool fail : {true, false}) {
    CountingModel model;
    const Output loss = ops::Identity(model.scope.WithOpName("loss"), model.w);
    const Operation diverge = model.w.Assign(model.scope, std::nanf(""));
    auto session =
        MonitoredTrainingSession(
            model.scope, {.hooks = {std::make_shared<NanTensorHook>(loss, NanTensorOptions{.fail_on_nan_loss = fail})}})
            .value();
    ASSERT_EQ(session->Run(model.train), absl::OkStatus());
    ASSERT_EQ(session->raw_session()->Run(diverge), absl::OkStatus());
    const Status status = session->Run({loss}).status();
    EXPECT_EQ(session->ShouldStop(), !fail);
    if (fail) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(status.message(), HasSubstr("loss:0 is not a number"));
    } else {
      EXPECT_EQ(status, absl::OkStatus());
    }
    EXPECT_EQ(session->Close(), absl::OkStatus());
  }
}

TEST(NanTensorHook, MisuseIsNamed) {
  CountingModel model;
  EXPECT_THAT(BeginStatus(model.scope, NanTensorHook(Output())).message(), HasSubstr("empty"));
  EXPECT_THAT(BeginStatus(model.scope, NanTensorHook(model.global_step)).message(), HasSubstr("int64"));
}

TEST(FinalOpsHook, RunsAtAGoodEndAndKeepsTheValues) {
  CountingModel model;
  const Output x = ops::Placeholder(model.scope, DType::kFloat);
  auto hook = std::make_shared<FinalOpsHook>(std::vector<Output>{model.w + x},
                                             ClientSession::Feeds{{x, Tensor::Scalar(10.0f)}});
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {StopAt(2), hook}}).value();
  RunToTheEnd(session.get(), model.train);
  EXPECT_TRUE(hook->final_ops_values().empty());
  ASSERT_EQ(session->Close(), absl::OkStatus());
  EXPECT_EQ(hook->final_ops_values()[0].scalar<float>(), 12);
}

TEST(FinalOpsHook, ItsErrorIsTheEndsError) {
  CountingModel model;
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {std::make_shared<FinalOpsHook>(std::vector<Output>{
                                                            ops::Placeholder(model.scope, DType::kFloat)})}})
                     .value();
  EXPECT_THAT(session->Close().message(), HasSubstr("final ops: "));
}

TEST(GlobalStepWaiterHook, TheFirstRunWaitsForTheStep) {
  CountingModel model;
  VirtualClock clock;
  MonitoredSession* watched = nullptr;
  auto hook = std::make_shared<GlobalStepWaiterHook>(GlobalStepWaiterOptions{
      .wait_until_step = 5, .wait = {.clock = &clock, .pause = [&](absl::Duration time) {
                                       clock.Advance(time);
                                       // As another worker does.
                                       EXPECT_TRUE(watched->raw_session()->Run(model.train).ok());
                                     }}});
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  watched = session.get();
  ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_EQ(ReadGlobalStep(session->raw_session(), model.global_step).value(), 6);
  ASSERT_EQ(session->Run(model.train), absl::OkStatus());
}

TEST(GlobalStepWaiterHook, ItsDeadlineNamesTheStep) {
  CountingModel model;
  VirtualClock clock;
  auto hook = std::make_shared<GlobalStepWaiterHook>(GlobalStepWaiterOptions{
      .wait_until_step = 5, .max_wait = absl::Seconds(9), .wait = {.clock = &clock, .pause = [&](absl::Duration time) {
                                                                     clock.Advance(time);
                                                                   }}});
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  const Status status = session->Run(model.train);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("global step 5; it is 0"));
}

TEST(FeedFnHook, FeedsEachRun) {
  CountingModel model;
  const Output x = ops::Placeholder(model.scope, DType::kFloat);
  const Output y = x * 2.0f;
  float next = 0;
  auto hook = std::make_shared<FeedFnHook>([&]() -> StatusOr<ClientSession::Feeds> {
    if (next == 3) return OutOfRange("no more batches");
    return ClientSession::Feeds{{x, Tensor::Scalar(++next)}};
  });
  auto session = MonitoredTrainingSession(model.scope, {.hooks = {hook}}).value();
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(session->Run({y}).value()[0].scalar<float>(), 2 * i);
  EXPECT_TRUE(absl::IsOutOfRange(session->Run({y}).status()));
  EXPECT_TRUE(session->ShouldStop());
}

TEST(ProgressHook, TellsStepAndLossTenTimesASecond) {
  CountingModel model;
  VirtualClock clock;
  std::vector<std::string> told;
  ProgressHook hook({.loss = model.w, .clock = &clock, .report = [&](const TrainingProgress& progress) {
                       told.push_back(FormatProgress(progress));
                     }});
  ASSERT_EQ(hook.Begin(model.scope), absl::OkStatus());
  hook.Resume(7);
  int fetched = 0;
  for (int i = 8; i < 38; ++i) {
    SessionRunContext context;
    const SessionRunArgs args = hook.BeforeRun(&context).value();
    SessionRunValues values;
    if (!args.fetches.empty()) {
      ++fetched;
      values.results = {Tensor::Scalar(int64_t{i}), Tensor::Scalar(0.25f)};
    }
    ASSERT_EQ(hook.AfterRun(&context, values), absl::OkStatus());
    clock.Advance(absl::Milliseconds(10));
  }
  EXPECT_EQ(fetched, 3);
  EXPECT_THAT(told, ElementsAre("step=7 phase=training", "step=8 loss=0.25 phase=training",
                                "step=18 loss=0.25 phase=training", "step=28 loss=0.25 phase=training"));
  EXPECT_EQ(hook.last_step(), 28);
}

TEST(StepCounterHook, CountsGlobalStepsPerSecond) {
  CountingModel model;
  VirtualClock clock;
  std::vector<std::pair<double, int64_t>> rates;
  StepCounterHook hook(
      {.every_steps = 10, .sink = [&](double rate, int64_t step) { rates.emplace_back(rate, step); }, .clock = &clock});
  ASSERT_EQ(hook.Begin(model.scope), absl::OkStatus());
  const auto run = [&](int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      SessionRunContext context;
      EXPECT_EQ(hook.BeforeRun(&context).value().fetches.size(), 1);
      ASSERT_EQ(hook.AfterRun(&context, {.results = {Tensor::Scalar(step)}}), absl::OkStatus());
      clock.Advance(absl::Milliseconds(50));
    }
  };
  ASSERT_EQ(hook.AfterCreateSession(nullptr, nullptr), absl::OkStatus());
  run(0, 21);
  // The time of a loss does not count, and neither does a step that comes again.
  clock.Advance(absl::Hours(1));
  ASSERT_EQ(hook.AfterCreateSession(nullptr, nullptr), absl::OkStatus());
  run(15, 26);
  ASSERT_EQ(rates.size(), 3);
  for (const auto& [rate, step] : rates) EXPECT_NEAR(rate, 20, 1e-6);
  EXPECT_EQ(rates[2].second, 25);
}

TEST(StepCounterHook, MisuseIsNamed) {
  CountingModel model;
  EXPECT_THAT(BeginStatus(model.scope, StepCounterHook({})).message(), HasSubstr("every_steps or every"));
  EXPECT_TRUE(absl::IsInvalidArgument(BeginStatus(model.scope, StepCounterHook({.every_steps = 0}))));
  EXPECT_TRUE(absl::IsFailedPrecondition(BeginStatus(Scope::NewRoot(), StepCounterHook({.every_steps = 1}))));
}

TEST(ProgressHook, ALossThatIsNoNumberIsRefused) {
  CountingModel model;
  EXPECT_THAT(MonitoredTrainingSession(model.scope, {.loss = model.global_step}).status().message(),
              HasSubstr("int64"));
}

}  // namespace
}  // namespace millrace
