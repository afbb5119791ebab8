#include "millrace/estimator/early_stopping.h"

#include <atomic>
#include <thread>

#include "millrace/cluster/server_testing.h"
#include "millrace/estimator/estimator_testing.h"
#include "millrace/estimator/train_and_evaluate.h"
#include "millrace/strategy/strategy_testing.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class EarlyStoppingTest : public EstimatorTest {
 protected:
  // Evaluations that others have written.
  void Write(const std::vector<std::pair<int64_t, double>>& losses) {
    const auto writer = FileWriter::Create(Dir("run/eval")).value();
    for (const auto& [step, loss] : losses) ASSERT_EQ(writer->AddScalar("loss", loss, step), absl::OkStatus());
    ASSERT_EQ(writer->Close(), absl::OkStatus());
  }
  // The step at which a training of 20 steps ends.
  int64_t TrainWith(const std::shared_ptr<SessionRunHook>& hook) {
    Estimator estimator = Line();
    EXPECT_EQ(estimator.Train(LineInput(), {.steps = 20, .hooks = {hook}}), absl::OkStatus());
    return StepOf(estimator);
  }
  const EarlyStoppingOptions every_step_{.run_every_steps = 1};
};

TEST_F(EarlyStoppingTest, EndsATrainingThatDoesNotGetBetter) {
  Write({{100, 5}, {200, 4}, {300, 4.5}, {400, 4.1}});
  Estimator estimator = Line();
  EXPECT_EQ(TrainWith(StopIfNoDecreaseHook(estimator, "loss", 300, every_step_)), 20);
  EXPECT_LT(TrainWith(StopIfNoDecreaseHook(estimator, "loss", 200, every_step_)), 40);
}

TEST_F(EarlyStoppingTest, EndsATrainingBeyondAThreshold) {
  Write({{100, 5}, {200, 4}});
  Estimator estimator = Line();
  EXPECT_EQ(TrainWith(StopIfLowerHook(estimator, "loss", 3, every_step_)), 20);
  EXPECT_EQ(TrainWith(StopIfHigherHook(estimator, "loss", 5, every_step_)), 40);
  EXPECT_EQ(TrainWith(StopIfNoIncreaseHook(estimator, "loss", 101, every_step_)), 60);
  // What comes before min_steps does not count.
  EXPECT_EQ(TrainWith(StopIfHigherHook(estimator, "loss", 4.5, {.min_steps = 150, .run_every_steps = 1})), 80);
  EXPECT_LT(TrainWith(StopIfLowerHook(estimator, "loss", 4.5, every_step_)), 100);
}

TEST_F(EarlyStoppingTest, ReadsWhatEvaluationsWrote) {
  EXPECT_TRUE(ReadEvalMetrics(Dir("run/eval")).value().empty());
  Estimator estimator = Line();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 3}), absl::OkStatus());
  const EvalResults results = estimator.Evaluate(LineInput(8, 8, 1)).value();
  const auto read = ReadEvalMetrics(estimator.EvalDir()).value();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_FLOAT_EQ(read.at(3).at("rmse"), results.number("rmse"));
  const Status status =
      estimator.Train(LineInput(), {.steps = 3, .hooks = {StopIfLowerHook(estimator, "auc", 1, every_step_)}});
  EXPECT_THAT(std::string(status.message()), HasSubstr("have no metric 'auc'"));
}

TEST_F(EarlyStoppingTest, WorkersOfAClusterEndWithTheChief) {
  const std::vector<int> ports = FreePorts(3);
  const auto at = [&](int i) { return absl::StrCat("localhost:", ports[i]); };
  const ClusterSpec cluster = ClusterSpec::Of({{"ps", {at(0)}}, {"worker", {at(1), at(2)}}}).value();
  const std::unique_ptr<Server> ps = Server::Start(cluster, "ps", 0).value();
  // Twice: the second training does not end because the first was ended.
  for (const int64_t last : {50, 200}) {
    std::vector<std::thread> tasks;
    std::atomic<int64_t> asked = 0;
    for (int i = 0; i < 2; ++i) {
      tasks.emplace_back([&, i] {
        const RunConfig config = RunConfig::Of({.cluster = cluster, .task = {"worker", i}}, Options()).value();
        Estimator estimator = Estimator::Create(LineModel, config).value();
        const auto hook = EarlyStoppingHook(estimator, [&]() -> StatusOr<bool> { return ++asked, true; },
                                            {.min_steps = last, .run_every_steps = 1});
        EXPECT_EQ(TrainAndEvaluate(estimator, {.input = LineInput(), .max_steps = 1000000, .hooks = {hook}},
                                   {.input = LineInput()})
                      .status(),
                  absl::OkStatus());
      });
    }
    for (std::thread& task : tasks) task.join();
    EXPECT_EQ(asked, 1);
    EXPECT_GE(StepOf(Line()), last);
    EXPECT_LT(StepOf(Line()), 1000000);
  }
}

TEST_F(EarlyStoppingTest, WorkersOfAStrategyEndAtTheSameStep) {
  const std::vector<int64_t> steps = OnWorkers<int64_t>(2, {.shards = 2}, [&](Strategy& strategy) {
    RunConfigOptions options = Options();
    options.train_distribute = std::shared_ptr<Strategy>(std::shared_ptr<Strategy>(), &strategy);
    Estimator estimator = Line(options);
    EXPECT_THAT(
        std::string(
            estimator
                .Train(LineExamples(),
                       {.steps = 1, .hooks = {EarlyStoppingHook(estimator, []() -> StatusOr<bool> { return true; })}})
                .message()),
        HasSubstr("set run_every_steps"));
    int asked = 0;
    const auto hook =
        EarlyStoppingHook(estimator, [&]() -> StatusOr<bool> { return ++asked == 4; }, {.run_every_steps = 5});
    EXPECT_EQ(estimator.Train(LineExamples(), {.max_steps = 100, .hooks = {hook}}), absl::OkStatus());
    return strategy.is_chief() ? StepOf(estimator) : 0;
  });
  EXPECT_EQ(steps[0], 16);
}

}  // namespace
}  // namespace millrace
