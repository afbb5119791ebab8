#include "millrace/estimator/train_and_evaluate.h"

#include <thread>

#include "millrace/cluster/server_testing.h"
#include "millrace/estimator/estimator_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Notes the step of each evaluation, with a star for the last.
struct Notes {
  std::vector<std::string> steps = {};
  int64_t stop_at = -1;

  AfterEvaluation Function() {
    return [this](Estimator&, const EvalResults& results, bool is_last) -> StatusOr<bool> {
      steps.push_back(absl::StrCat(results.global_step, is_last ? "*" : ""));
      return results.global_step == stop_at;
    };
  }
};

EvalSpec LineEval(Notes& notes, absl::Duration throttle = absl::ZeroDuration()) {
  return {.input = LineInput(16, 8, 1),
          .after = {notes.Function()},
          .start_delay = absl::ZeroDuration(),
          .throttle = throttle};
}

class TrainAndEvaluateTest : public EstimatorTest {
 protected:
  Estimator EveryTenSteps() {
    RunConfigOptions options = Options();
    options.save_checkpoints_steps = 10;
    return Line(options);
  }
};

TEST_F(TrainAndEvaluateTest, InOneProcessEachCheckpointIsEvaluated) {
  Estimator estimator = EveryTenSteps();
  Notes notes;
  const EvalResults results =
      TrainAndEvaluate(estimator, {.input = LineInput(), .max_steps = 35}, LineEval(notes)).value();
  EXPECT_THAT(notes.steps, ElementsAre("10", "20", "30", "35*"));
  EXPECT_EQ(results.global_step, 35);
  EXPECT_LT(results.number("rmse"), 1);
  // Again: nothing to train, but the result is there.
  notes.steps.clear();
  EXPECT_EQ(TrainAndEvaluate(estimator, {.input = LineInput(), .max_steps = 35}, LineEval(notes)).value().global_step,
            35);
  EXPECT_THAT(notes.steps, ElementsAre("35*"));
}

TEST_F(TrainAndEvaluateTest, TheEndOfTheInputIsTheLastEvaluation) {
  Estimator estimator = EveryTenSteps();
  Notes notes;
  ASSERT_TRUE(TrainAndEvaluate(estimator, {.input = LineInput(32, 8, 3)}, LineEval(notes)).ok());
  EXPECT_EQ(notes.steps.back(), "12*");
}

TEST_F(TrainAndEvaluateTest, TheThrottleLeavesCheckpointsOut) {
  Estimator estimator = EveryTenSteps();
  Notes notes;
  ASSERT_TRUE(
      TrainAndEvaluate(estimator, {.input = LineInput(), .max_steps = 35}, LineEval(notes, absl::Hours(1))).ok());
  EXPECT_THAT(notes.steps, ElementsAre("10", "35*"));
}

TEST_F(TrainAndEvaluateTest, AnEvaluationMayEndTheTraining) {
  Estimator estimator = EveryTenSteps();
  Notes notes{.stop_at = 20};
  ASSERT_TRUE(TrainAndEvaluate(estimator, {.input = LineInput(), .max_steps = 1000}, LineEval(notes)).ok());
  EXPECT_LT(StepOf(estimator), 40);
}

TEST_F(TrainAndEvaluateTest, TheTasksOfAClusterDoTheirParts) {
  const std::vector<int> ports = FreePorts(3);
  const auto at = [&](int i) { return absl::StrCat("localhost:", ports[i]); };
  const ClusterSpec cluster = ClusterSpec::Of({{"chief", {at(0)}}, {"ps", {at(1)}}, {"worker", {at(2)}}}).value();
  // The program of a ps does not end by itself.
  const std::unique_ptr<Server> ps = Server::Start(cluster, "ps", 0).value();
  Notes notes;
  EvalResults last;
  std::vector<std::thread> tasks;
  for (const char* job : {"chief", "worker", "evaluator"}) {
    tasks.emplace_back([&, job] {
      RunConfigOptions options = Options();
      options.save_checkpoints_steps = 20;
      Estimator estimator =
          Estimator::Create(LineModel, RunConfig::Of({.cluster = cluster, .task = {job, 0}}, options).value()).value();
      const StatusOr<EvalResults> results =
          TrainAndEvaluate(estimator, {.input = LineInput(), .max_steps = 100}, LineEval(notes));
      EXPECT_EQ(results.status(), absl::OkStatus()) << job;
      if (results.ok() && job == std::string("evaluator")) last = *results;
    });
  }
  for (std::thread& task : tasks) task.join();
  EXPECT_GE(last.global_step, 100);
  EXPECT_EQ(notes.steps.back(), absl::StrCat(last.global_step, "*"));
  EXPECT_LT(last.number("rmse"), 0.5);
}

TEST_F(TrainAndEvaluateTest, AnEvaluatorWaitsByTheClock) {
  Estimator trained = EveryTenSteps();
  ASSERT_EQ(trained.Train(LineInput(), {.steps = 10}), absl::OkStatus());
  Estimator evaluator =
      Estimator::Create(LineModel, RunConfig::Of({.task = {"evaluator", 0}}, Options()).value()).value();
  VirtualClock clock;
  const absl::Time begun = clock.Now();
  Notes notes;
  std::vector<absl::Duration> when;
  EvalSpec eval = LineEval(notes, absl::Seconds(60));
  eval.start_delay = absl::Seconds(100);
  eval.after.push_back([&](Estimator&, const EvalResults& results, bool) -> StatusOr<bool> {
    when.push_back(clock.Now() - begun);
    // Two more checkpoints: the throttle leaves the first of them out only if it is not the newest.
    if (results.global_step < 30) MR_RETURN_IF_ERROR(trained.Train(LineInput(), {.steps = 10}));
    return false;
  });
  WaitSettings wait{.clock = &clock, .pause = [&](absl::Duration pause) { clock.Advance(pause); }};
  ASSERT_EQ(TrainAndEvaluate(evaluator, {.input = LineInput(), .max_steps = 30}, eval, {.wait = wait}).status(),
            absl::OkStatus());
  EXPECT_THAT(notes.steps, ElementsAre("10", "20", "30*"));
  EXPECT_GE(when[0], absl::Seconds(100));
  EXPECT_GE(when[1] - when[0], absl::Seconds(60));
  EXPECT_LT(when[2] - when[1], absl::Seconds(60));  // the last does not wait for the throttle

  // Nothing new comes.
  const Status waited = TrainAndEvaluate(evaluator, {.input = LineInput(), .max_steps = 40}, eval,
                                         {.wait = wait, .max_wait = absl::Hours(1)})
                            .status();
  EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(waited.message()), HasSubstr(absl::StrCat("a new checkpoint in ", Dir())));
}

TEST_F(TrainAndEvaluateTest, WhatIsWrongIsNamed) {
  Estimator estimator = Line();
  Notes notes;
  const auto error = [&](const TrainSpec& train, const EvalSpec& eval) {
    return std::string(TrainAndEvaluate(estimator, train, eval).status().message());
  };
  EXPECT_THAT(error({}, LineEval(notes)), HasSubstr("TrainSpec has no input function"));
  EXPECT_THAT(error({.input = LineInput()}, {}), HasSubstr("EvalSpec has no input function"));
  EXPECT_THAT(error({.input = LineInput(), .max_steps = 0}, LineEval(notes)), HasSubstr("max_steps is 0"));
  EXPECT_THAT(error({.input = LineInput()}, {.input = LineInput(), .steps = 0}), HasSubstr("steps is 0"));
  EXPECT_THAT(error({.input = LineInput()}, LineEval(notes, absl::Seconds(-1))), HasSubstr("throttle -1s"));
}

}  // namespace
}  // namespace millrace
