#include "millrace/estimator/estimator.h"

#include <cmath>
#include <filesystem>

#include "millrace/estimator/estimator_testing.h"
#include "millrace/strategy/strategy_testing.h"
#include "millrace/train/events_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> PredictionsOf(Estimator& estimator, int n, const std::string& key) {
  std::unique_ptr<Predictions> predictions = estimator.Predict(LineInput(n, 8, 1), {.predict_keys = {key}}).value();
  std::vector<float> values;
  std::map<std::string, Tensor> one;
  while (predictions->Next(&one).value()) values.push_back(one.at(key).data<float>()[0]);
  return values;
}

TEST_F(EstimatorTest, TrainsEvaluatesAndPredicts) {
  Estimator estimator = Line();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 400}), absl::OkStatus());
  EXPECT_EQ(StepOf(estimator), 400);
  EXPECT_NEAR(WeightOf(estimator), 3, 0.2);
  EXPECT_THAT(estimator.GetVariableNames().value(), ElementsAre("b", "global_step", "w"));

  const EvalResults results = estimator.Evaluate(LineInput(20, 8, 1)).value();
  EXPECT_EQ(results.global_step, 400);
  EXPECT_LT(results.number("rmse"), 0.1);
  EXPECT_LT(results.number("loss"), 0.01);
  EXPECT_TRUE(std::isnan(results.number("nothing")));
  EXPECT_EQ(results.checkpoint, estimator.LatestCheckpoint().value());

  const std::vector<float> predicted = PredictionsOf(estimator, 12, "y");
  ASSERT_EQ(predicted.size(), 12u);
  EXPECT_NEAR(predicted[4], 0.5, 0.1);
}

TEST_F(EstimatorTest, ATrainingGoesOnFromItsCheckpoint) {
  Estimator whole = Line(Options("whole"));
  ASSERT_EQ(whole.Train(LineInput(), {.max_steps = 20}), absl::OkStatus());
  Estimator halves = Line(Options("halves"));
  ASSERT_EQ(halves.Train(LineInput(), {.steps = 8}), absl::OkStatus());
  EXPECT_EQ(StepOf(halves), 8);
  EXPECT_NE(WeightOf(halves), WeightOf(whole));
  // Batches repeat every four steps, so the second half sees what the whole saw.
  ASSERT_EQ(halves.Train(LineInput(), {.max_steps = 20}), absl::OkStatus());
  EXPECT_EQ(StepOf(halves), 20);
  EXPECT_EQ(WeightOf(halves), WeightOf(whole));
  // There is nothing left to do, and not even the input is asked for.
  const InputFn never = [](const Scope&, const InputContext&) -> StatusOr<EstimatorInput> {
    return Internal("the input was asked for");
  };
  EXPECT_EQ(halves.Train(never, {.max_steps = 20}), absl::OkStatus());
}

TEST_F(EstimatorTest, ATrainingEndsWithItsInput) {
  Estimator estimator = Line();
  ASSERT_EQ(estimator.Train(LineInput(32, 8, 2)), absl::OkStatus());
  EXPECT_EQ(StepOf(estimator), 8);
}

TEST_F(EstimatorTest, MetricsAreThoseOfAllExamplesOfTheInput) {
  Estimator estimator = Line();
  const InputFn still = LineInput();
  // After one step of rate 0 the line is y = 0.
  Estimator flat = Line(Options(), {.params = {{"learning_rate", Tensor::Scalar(0.0f)}}});
  ASSERT_EQ(flat.Train(still, {.steps = 1}), absl::OkStatus());
  double squares = 0, first = 0, second = 0;
  for (int i = 0; i < 12; ++i) {
    const double y = 3 * (i % 8) / 8.0 - 1;
    squares += y * y;
    (i < 8 ? first : second) += y * y;
  }
  const EvalResults results = estimator.Evaluate(LineInput(12, 8, 1)).value();
  EXPECT_NEAR(results.number("rmse"), std::sqrt(squares / 12), 1e-6);
  EXPECT_NEAR(results.number("loss"), (first / 8 + second / 4) / 2, 1e-6);  // the mean over batches
  EXPECT_NEAR(estimator.Evaluate(LineInput(12, 8, 1), {.steps = 1}).value().number("loss"), first / 8, 1e-6);
  // Single examples, of which the Estimator makes the same batches.
  EXPECT_NEAR(estimator.Evaluate(LineExamples(12, 8)).value().number("loss"), results.number("loss"), 1e-6);
}

TEST_F(EstimatorTest, WritesEventsOfTrainingsAndEvaluations) {
  Estimator estimator = Line();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 3}), absl::OkStatus());
  const EvalResults results = estimator.Evaluate(LineInput(8, 8, 1)).value();
  ASSERT_TRUE(estimator.Evaluate(LineInput(8, 8, 1), {.name = "test"}).ok());
  EXPECT_EQ(estimator.EvalDir(), Dir("run/eval"));
  for (const std::string& directory : {Dir("run/eval"), Dir("run/eval_test")}) {
    std::map<std::string, float> written;
    for (const auto& file : std::filesystem::directory_iterator(directory)) {
      for (const ::tensorflow::Event& event : EventsOf(file.path())) {
        ::tensorflow::Summary summary;
        ASSERT_TRUE(summary.ParseFromString(event.summary()));
        for (const auto& value : summary.value()) {
          EXPECT_EQ(event.step(), 3);
          written[value.tag()] = value.simple_value();
        }
      }
    }
    EXPECT_EQ(written.size(), 2u);
    EXPECT_FLOAT_EQ(written["rmse"], static_cast<float>(results.number("rmse")));
    EXPECT_FLOAT_EQ(written["loss"], static_cast<float>(results.number("loss")));
  }
}

TEST_F(EstimatorTest, PredictsExamplesOrBatches) {
  Estimator estimator = Line();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 3}), absl::OkStatus());
  const std::vector<float> y = PredictionsOf(estimator, 5, "y");
  const std::vector<float> twice = PredictionsOf(estimator, 5, "twice");
  ASSERT_EQ(y.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(twice[i], 2 * y[i]);
  // Without labels, and in batches.
  const InputFn only_x = [](const Scope&, const InputContext& context) -> StatusOr<EstimatorInput> {
    EXPECT_EQ(context.mode, ModelMode::kPredict);
    return EstimatorInput{.dataset =
                              Dataset::FromTensors({Tensor::Of<float>({5, 1}, {0, 1, 2, 3, 4})}).value().Batch(3)};
  };
  std::unique_ptr<Predictions> batches = estimator.Predict(only_x, {.yield_single_examples = false}).value();
  std::map<std::string, Tensor> one;
  ASSERT_TRUE(batches->Next(&one).value());
  EXPECT_EQ(one.at("y").shape(), (Shape{3, 1}));
  EXPECT_EQ(one.size(), 2u);
  ASSERT_TRUE(batches->Next(&one).value());
  EXPECT_EQ(one.at("y").shape(), (Shape{2, 1}));
  EXPECT_FALSE(batches->Next(&one).value());
  EXPECT_FALSE(batches->Next(&one).value());
  EXPECT_TRUE(PredictionsOf(estimator, 0, "y").empty());
}

TEST_F(EstimatorTest, TheInputMayBeTensorsOfTheGraph) {
  Estimator estimator = Line();
  const InputFn constant = [](const Scope& scope, const InputContext&) -> StatusOr<EstimatorInput> {
    return EstimatorInput{.feature_tensors = {{"x", ops::Const(scope, Tensor::Of<float>({2, 1}, {0, 1}))}},
                          .label_tensors = {{"y", ops::Const(scope, Tensor::Of<float>({2, 1}, {-1, 2}))}}};
  };
  ASSERT_EQ(estimator.Train(constant, {.steps = 200}), absl::OkStatus());
  EXPECT_NEAR(WeightOf(estimator), 3, 0.1);
  EXPECT_LT(estimator.Evaluate(constant, {.steps = 2}).value().number("loss"), 0.01);
  // A queue that is closed ends the training.
  const InputFn queue = [](const Scope& scope, const InputContext&) -> StatusOr<EstimatorInput> {
    const Output numbers = ops::FIFOQueueV2(scope, {DType::kFloat}, {.shapes = {PartialShape{1, 1}}});
    const Scope closed = scope.WithControlDependencies({ops::QueueCloseV2(scope, numbers)});
    const Output x = ops::QueueDequeueV2(closed, numbers, {DType::kFloat})[0];
    return EstimatorInput{.feature_tensors = {{"x", x}}, .label_tensors = {{"y", x}}};
  };
  ASSERT_EQ(estimator.Train(queue), absl::OkStatus());
}

// Mirrored, so that there are several replicas on several devices.
std::shared_ptr<Strategy> TwoDevices() {
  return MirroredStrategy({.devices = {"/device:CPU:0", "/device:CPU:1"}, .shards = 4}).value();
}

TEST_F(EstimatorTest, AStrategyTrainsTheSameModel) {
  RunConfigOptions options = Options("mirrored");
  options.train_distribute = TwoDevices();
  options.eval_distribute = TwoDevices();
  Estimator mirrored = Line(options);
  ASSERT_EQ(mirrored.Train(LineExamples(), {.max_steps = 30}), absl::OkStatus());
  EXPECT_EQ(StepOf(mirrored), 30);
  options = Options("one");
  options.train_distribute = OneDeviceStrategy({.shards = 4}).value();
  Estimator one = Line(options);
  // In two parts: the second begins with the batch after the first.
  ASSERT_EQ(one.Train(LineExamples(), {.max_steps = 13}), absl::OkStatus());
  ASSERT_EQ(one.Train(LineExamples(), {.max_steps = 30}), absl::OkStatus());
  EXPECT_EQ(WeightOf(one), WeightOf(mirrored));

  // 19 examples: the replicas' parts of the last batch differ.
  const EvalResults by_strategy = mirrored.Evaluate(LineExamples(19, 8)).value();
  const EvalResults alone = one.Evaluate(LineExamples(19, 8)).value();
  EXPECT_NEAR(by_strategy.number("rmse"), alone.number("rmse"), 1e-6);
  EXPECT_EQ(by_strategy.global_step, 30);
}

TEST_F(EstimatorTest, WorkersTrainAndEvaluateTogether) {
  std::vector<EvalResults> results = OnWorkers<EvalResults>(2, {.shards = 4}, [&](Strategy& strategy) {
    RunConfigOptions options = Options("workers");
    options.train_distribute = options.eval_distribute =
        std::shared_ptr<Strategy>(std::shared_ptr<Strategy>(), &strategy);
    Estimator estimator = Line(options);
    EXPECT_EQ(estimator.Train(LineExamples(), {.max_steps = 30}), absl::OkStatus());
    // The other worker may be done before the chief has saved.
    const StatusOr<EvalResults> evaluated = estimator.Evaluate(LineExamples(19, 8));
    EXPECT_EQ(evaluated.status(), absl::OkStatus());
    return evaluated.value_or(EvalResults());
  });
  Estimator estimator = Line(Options("workers"));
  const double alone = estimator.Evaluate(LineExamples(19, 8)).value().number("rmse");
  for (const EvalResults& result : results) EXPECT_NEAR(result.number("rmse"), alone, 1e-6);
}

TEST_F(EstimatorTest, HooksOfTheModelAndOfTheCallRun) {
  struct Counts : public SessionRunHook {
    Status AfterRun(SessionRunContext*, const SessionRunValues&) override {
      ++runs;
      return absl::OkStatus();
    }
    int runs = 0;
  };
  const auto of_model = std::make_shared<Counts>(), of_eval = std::make_shared<Counts>(),
             of_call = std::make_shared<Counts>();
  const ModelFn model = [&](const Scope& scope, const ModelArgs& args) {
    EstimatorSpec spec = LineModel(scope, args);
    spec.training_hooks = {of_model};
    spec.evaluation_hooks = {of_eval};
    return spec;
  };
  Estimator estimator = Estimator::Create(model, RunConfig::Of({}, Options()).value()).value();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 3, .hooks = {of_call}}), absl::OkStatus());
  ASSERT_TRUE(estimator.Evaluate(LineInput(16, 8, 1)).ok());
  EXPECT_EQ(of_model->runs, 3);
  EXPECT_EQ(of_call->runs, 3);
  EXPECT_EQ(of_eval->runs, 2);
}

TEST_F(EstimatorTest, StartsWarm) {
  Estimator old = Line(Options("old"));
  ASSERT_EQ(old.Train(LineInput(), {.steps = 50}), absl::OkStatus());
  Estimator warm =
      Line(Options("warm"), {.params = {{"learning_rate", Tensor::Scalar(0.0f)}}, .warm_start_from = Dir("old")});
  ASSERT_EQ(warm.Train(LineInput(), {.steps = 1}), absl::OkStatus());
  EXPECT_EQ(WeightOf(warm), WeightOf(old));
  EXPECT_EQ(StepOf(warm), 1);
}

TEST_F(EstimatorTest, KeepsAsManyCheckpointsAsAsked) {
  RunConfigOptions options = Options();
  options.save_checkpoints_steps = 2;
  options.keep_checkpoint_max = 2;
  Estimator estimator = Line(options);
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 9}), absl::OkStatus());
  int kept = 0;
  for (const auto& file : std::filesystem::directory_iterator(Dir())) kept += file.path().extension() == ".index";
  EXPECT_EQ(kept, 2);
}

TEST_F(EstimatorTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(std::string(Estimator::Create(LineModel, RunConfig()).status().message()), HasSubstr("no model_dir"));
  EXPECT_THAT(std::string(Estimator::Create(nullptr, RunConfig()).status().message()), HasSubstr("no model function"));
  Estimator estimator = Line();
  const auto message = [](const Status& status) { return std::string(status.message()); };
  const StatusOr<EvalResults> none = estimator.Evaluate(LineInput());
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(message(none.status()), HasSubstr(Dir()));
  EXPECT_THAT(message(estimator.Predict(LineInput()).status()), HasSubstr("train first"));
  EXPECT_THAT(message(estimator.Train(LineInput(), {.steps = 1, .max_steps = 1})), HasSubstr("steps and max_steps"));
  EXPECT_THAT(message(estimator.Train(LineInput(), {.steps = 0})), HasSubstr("steps is 0"));
  EXPECT_THAT(message(estimator.Train(nullptr, {.steps = 1})), HasSubstr("no input function"));
  const auto with_input = [&](EstimatorInput input) {
    return message(estimator.Train([&](const Scope&, const InputContext&) -> StatusOr<EstimatorInput> { return input; },
                                   {.steps = 1}));
  };
  EXPECT_THAT(with_input({}), HasSubstr("either a dataset or feature_tensors"));
  EXPECT_THAT(with_input({.dataset = LinePoints(8).Batch(4), .features = {"a", "b"}}),
              HasSubstr("have 2 components, but there are 2 features and 1 labels"));
  EXPECT_THAT(with_input({.dataset = LinePoints(8).Take(0).Batch(4)}), HasSubstr("the training has no batch"));
  const auto with_model = [&](const ModelFn& model, const InputFn& input = LineInput(), bool strategy = false) {
    RunConfigOptions options = Options("model");
    if (strategy) options.train_distribute = TwoDevices();
    Estimator other = Estimator::Create(model, RunConfig::Of({}, options).value()).value();
    return message(other.Train(input, {.steps = 1}));
  };
  EXPECT_THAT(with_model([](const Scope&, const ModelArgs&) { return EstimatorSpec(); }),
              HasSubstr("returned no loss"));
  EXPECT_THAT(with_model([](const Scope& s, const ModelArgs& args) {
                EstimatorSpec spec = LineModel(s, args);
                spec.optimizer = nullptr;
                return spec;
              }),
              HasSubstr("neither an optimizer nor a train_op"));
  EXPECT_THAT(with_model([](const Scope& s, const ModelArgs& args) {
                EstimatorSpec spec = LineModel(s, args);
                spec.loss = spec.predictions["y"];
                return spec;
              }),
              HasSubstr("loss has shape [?,1]"));
  EXPECT_THAT(with_model([](const Scope& s, const ModelArgs& args) {
                args.feature(s, "z");
                return EstimatorSpec();
              }),
              HasSubstr("there is no feature 'z'; the names are: x"));
  EXPECT_THAT(with_model(LineModel, LineInput(), true), HasSubstr("EstimatorInput::batches"));
  EXPECT_THAT(with_model(
                  [](const Scope& s, const ModelArgs& args) {
                    EstimatorSpec spec = LineModel(s, args);
                    spec.optimizer = nullptr;
                    return spec;
                  },
                  LineExamples(), true),
              HasSubstr("no optimizer, which the strategy Mirrored needs"));
  // The loss grows until it is NaN.
  Estimator wild = Line(Options("wild"), {.params = {{"learning_rate", Tensor::Scalar(1e30f)}}});
  EXPECT_THAT(message(wild.Train(LineInput(), {.steps = 50})), HasSubstr("NaN"));
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 1}), absl::OkStatus());
  EXPECT_THAT(message(estimator.Predict(LineInput(8, 8, 1), {.predict_keys = {"z"}}).status()),
              HasSubstr("no prediction 'z'; the names are: twice, y"));
  EXPECT_THAT(message(estimator.Evaluate(LineInput(0, 8, 1)).status()), HasSubstr("no batch"));
}

TEST_F(EstimatorTest, WorkersWithoutParameterServersNeedAStrategy) {
  const TaskConfig worker{.cluster = ClusterSpec::Of({{"worker", {"a:1", "b:1"}}}).value(), .task = {"worker", 0}};
  Estimator estimator = Estimator::Create(LineModel, RunConfig::Of(worker, Options()).value()).value();
  EXPECT_THAT(std::string(estimator.Train(LineInput(), {.steps = 1}).message()), HasSubstr("2 workers and no ps"));
}

}  // namespace
}  // namespace millrace
