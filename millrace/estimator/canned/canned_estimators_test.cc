// Expected values are those of TensorFlow 2.15's tf.compat.v1.estimator for the same data and initial weights.
#include "millrace/estimator/canned/canned_estimators.h"

#include <cmath>

#include "millrace/estimator/estimator_testing.h"
#include "millrace/estimator/feature_columns/input_layer.h"
#include "millrace/estimator/model_graph.h"
#include "millrace/estimator/serving.h"
#include "millrace/saved_model/saved_model.h"
#include "millrace/strategy/strategy_testing.h"

namespace millrace {
namespace {

namespace fc = feature_column;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// Six examples as one batch, three times.
InputFn SixExamples(const Tensor& labels, int repeat = 3) {
  return [=](const Scope&, const InputContext&) -> StatusOr<EstimatorInput> {
    const Tensor x = Tensor::Of<float>({6, 1}, {.1f, .4f, .6f, .9f, -.5f, 1.5f});
    const Tensor c = Tensor::Of<std::string>({6, 1}, {"a", "b", "a", "c", "b", "c"});
    const Tensor w = Tensor::Of<float>({6, 1}, {1, 2, 1, .5, 0, 3});
    return EstimatorInput{.dataset = Dataset::FromElement({x, c, w, labels}).Repeat(repeat),
                          .features = {"x", "c", "w"}};
  };
}
// The same one by one, for a strategy.
InputFn SixSingleExamples(const Tensor& labels) {
  return [=](const Scope& scope, const InputContext& context) -> StatusOr<EstimatorInput> {
    MR_ASSIGN_OR_RETURN(EstimatorInput input, SixExamples(labels, 1)(scope, context));
    input.dataset = input.dataset->Unbatch();
    input.batches = DistributeOptions{.batch_size = 6, .shuffle_buffer = -1};
    return input;
  };
}

const Tensor kTwo = Tensor::Of<int64_t>({0, 1, 0, 1, 0, 1});
const Tensor kThree = Tensor::Of<int64_t>({0, 1, 2, 2, 1, 0});
const Tensor kNumbers = Tensor::Of<float>({.5f, 1.f, -1.f, 2.f, .25f, 3.f});

class CannedTest : public EstimatorTest {
 protected:
  RunConfig Config(absl::string_view name = "run") const { return RunConfig::Of({}, Options(name)).value(); }
  LinearOptions Wide() const { return {.columns = {x_, c_}}; }

  static void ExpectMetrics(Estimator& estimator, const Tensor& labels, const std::map<std::string, double>& expected) {
    const StatusOr<EvalResults> results = estimator.Evaluate(SixExamples(labels, 1));
    ASSERT_EQ(results.status(), absl::OkStatus());
    for (const auto& [name, value] : expected) EXPECT_NEAR(results->number(name), value, 1e-5) << name;
    EXPECT_EQ(results->values.size(), expected.size()) << results->ToString();
  }
  static void ExpectVariable(const Estimator& estimator, const std::string& name, const std::vector<float>& expected) {
    const StatusOr<Tensor> value = estimator.GetVariableValue(name);
    ASSERT_EQ(value.status(), absl::OkStatus());
    EXPECT_THAT(std::vector<float>(value->data<float>(), value->data<float>() + value->num_elements()),
                Pointwise(FloatNear(2e-6f), expected))
        << name;
  }
  static std::map<std::string, Tensor> FirstPrediction(Estimator& estimator, const Tensor& labels) {
    std::map<std::string, Tensor> first;
    EXPECT_TRUE(estimator.Predict(SixExamples(labels, 1)).value()->Next(&first).value());
    return first;
  }
  // The error of a training step.
  static std::string TrainError(StatusOr<Estimator> estimator, const InputFn& input) {
    if (!estimator.ok()) return std::string(estimator.status().message());
    return std::string(estimator->Train(input, {.steps = 1}).message());
  }

  const FeatureColumn x_ = fc::Numeric("x");
  const FeatureColumn w_ = fc::Numeric("w");
  const FeatureColumn c_ = fc::CategoricalWithVocabularyList("c", {"a", "b", "c"});
};

TEST_F(CannedTest, LinearClassifierOfTwoClasses) {
  Estimator estimator = LinearClassifier(Config(), Wide()).value();
  ASSERT_EQ(estimator.Train(SixExamples(kTwo)), absl::OkStatus());
  ExpectMetrics(estimator, kTwo,
                {{"accuracy", 1},
                 {"accuracy_baseline", 0.5},
                 {"auc", 1},
                 {"auc_precision_recall", 1},
                 {"average_loss", 0.498724},
                 {"label/mean", 0.5},
                 {"loss", 2.992342},
                 {"precision", 1},
                 {"prediction/mean", 0.515633},
                 {"recall", 1}});
  EXPECT_THAT(estimator.GetVariableNames().value(),
              ElementsAre("global_step", "linear/linear_model/bias_weights", "linear/linear_model/bias_weights/Ftrl",
                          "linear/linear_model/bias_weights/Ftrl_1", "linear/linear_model/c/weights",
                          "linear/linear_model/c/weights/Ftrl", "linear/linear_model/c/weights/Ftrl_1",
                          "linear/linear_model/x/weights", "linear/linear_model/x/weights/Ftrl",
                          "linear/linear_model/x/weights/Ftrl_1"));
  ExpectVariable(estimator, "linear/linear_model/c/weights", {-0.427786f, 0.032598f, 0.405729f});
  ExpectVariable(estimator, "linear/linear_model/x/weights", {0.413969f});
  ExpectVariable(estimator, "linear/linear_model/bias_weights", {-0.138251f});
  const std::map<std::string, Tensor> first = FirstPrediction(estimator, kTwo);
  EXPECT_EQ(first.size(), 7u);
  EXPECT_NEAR(first.at("logits").data<float>()[0], -0.52464, 1e-5);
  EXPECT_NEAR(first.at("logistic").data<float>()[0], 0.371768, 1e-5);
  EXPECT_NEAR(first.at("probabilities").data<float>()[0], 0.628232, 1e-5);
  EXPECT_EQ(first.at("class_ids").data<int64_t>()[0], 0);
  EXPECT_EQ(first.at("classes").data<std::string>()[0], "0");
  EXPECT_EQ(first.at("all_class_ids").data<int32_t>()[1], 1);
  EXPECT_EQ(first.at("all_classes").data<std::string>()[1], "1");
}

TEST_F(CannedTest, ExamplesHaveWeights) {
  Estimator estimator = LinearClassifier(Config(), Wide(), {.weight_column = w_}).value();
  ASSERT_EQ(estimator.Train(SixExamples(kTwo)), absl::OkStatus());
  ExpectMetrics(estimator, kTwo,
                {{"accuracy", 0.866667},
                 {"accuracy_baseline", 0.733333},
                 {"auc", 1},
                 {"auc_precision_recall", 1},
                 {"average_loss", 0.396927},
                 {"label/mean", 0.733333},
                 {"loss", 2.976951},
                 {"precision", 0.846154},
                 {"prediction/mean", 0.687945},
                 {"recall", 1}});
  ExpectVariable(estimator, "linear/linear_model/c/weights", {-0.445979f, 0.399035f, 0.386881f});
}

TEST_F(CannedTest, LabelsMayBeStrings) {
  const Tensor labels = Tensor::Of<std::string>({"n", "y", "n", "y", "n", "y"});
  Estimator estimator =
      LinearClassifier(Config(), Wide(),
                       {.label_vocabulary = {"n", "y"}, .loss_reduction = LossReduction::kSumOverBatchSize})
          .value();
  ASSERT_EQ(estimator.Train(SixExamples(labels)), absl::OkStatus());
  EXPECT_NEAR(estimator.Evaluate(SixExamples(labels, 1)).value().number("loss"), 0.566789, 1e-5);
  ExpectVariable(estimator, "linear/linear_model/c/weights", {-0.250242f, 0.001282f, 0.234867f});
  EXPECT_EQ(FirstPrediction(estimator, labels).at("classes").data<std::string>()[0], "n");
  EXPECT_EQ(FirstPrediction(estimator, labels).at("all_classes").data<std::string>()[1], "y");
  const Tensor other = Tensor::Of<std::string>({"n", "maybe", "n", "y", "n", "y"});
  EXPECT_THAT(std::string(estimator.Evaluate(SixExamples(other, 1)).status().message()),
              HasSubstr("a label is not in label_vocabulary; the labels are] [[n][maybe]"));
}

TEST_F(CannedTest, LinearClassifierOfThreeClasses) {
  Estimator estimator = LinearClassifier(Config(), Wide(), {.n_classes = 3}).value();
  ASSERT_EQ(estimator.Train(SixExamples(kThree)), absl::OkStatus());
  ExpectMetrics(estimator, kThree, {{"accuracy", 0.5}, {"average_loss", 0.758225}, {"loss", 4.549347}});
  ExpectVariable(estimator, "linear/linear_model/x/weights", {0.343598f, -0.362837f, 0.316457f});
  const std::map<std::string, Tensor> first = FirstPrediction(estimator, kThree);
  EXPECT_EQ(first.size(), 6u);
  EXPECT_NEAR(first.at("probabilities").data<float>()[1], 0.238022, 1e-5);
  EXPECT_EQ(first.at("class_ids").data<int64_t>()[0], 2);
}

TEST_F(CannedTest, LinearRegressor) {
  Estimator estimator = LinearRegressor(Config(), Wide(), {.weight_column = w_}).value();
  ASSERT_EQ(estimator.Train(SixExamples(kNumbers)), absl::OkStatus());
  ExpectMetrics(
      estimator, kNumbers,
      {{"average_loss", 1.281881}, {"label/mean", 1.533333}, {"loss", 9.614109}, {"prediction/mean", 0.896527}});
  EXPECT_NEAR(FirstPrediction(estimator, kNumbers).at("predictions").data<float>()[0], -0.036099, 1e-5);
}

TEST_F(CannedTest, Baseline) {
  Estimator estimator = BaselineClassifier(Config(), {.n_classes = 3}).value();
  ASSERT_EQ(estimator.Train(SixExamples(kThree)), absl::OkStatus());
  ExpectMetrics(estimator, kThree, {{"accuracy", 1.0 / 3}, {"average_loss", 1.098612}, {"loss", 6.591674}});
  EXPECT_THAT(estimator.GetVariableNames().value(),
              ElementsAre("baseline/bias", "baseline/bias/Ftrl", "baseline/bias/Ftrl_1", "global_step"));
  Estimator mean = BaselineRegressor(Config("mean")).value();
  ASSERT_EQ(mean.Train(SixExamples(kNumbers, 300)), absl::OkStatus());
  EXPECT_NEAR(mean.Evaluate(SixExamples(kNumbers, 1)).value().number("prediction/mean"), 5.75 / 6, 0.01);
}

TEST_F(CannedTest, WideAndDeepGoesOnFromACheckpointOfTensorFlows) {
  // Writes what TensorFlow's Estimator would: variables of these names and shapes, with element i of a weight
  // (i % 5) / 10 + 0.05.
  const std::map<std::string, Shape> deep = {
      {"dnn/hiddenlayer_0/bias", {2}},
      {"dnn/hiddenlayer_0/kernel", {3, 2}},
      {"dnn/input_from_feature_columns/input_layer/c_embedding/embedding_weights", {3, 2}},
      {"dnn/logits/bias", {1}},
      {"dnn/logits/kernel", {2, 1}}};
  const std::map<std::string, Shape> wide = {{"linear/linear_model/bias_weights", {1}},
                                             {"linear/linear_model/c/weights", {3, 1}},
                                             {"linear/linear_model/x/weights", {1, 1}}};
  const Scope scope = Scope::NewRoot();
  GlobalStep(scope);
  for (const auto& [name, shape] : deep) {
    Tensor value(DType::kFloat, shape);
    for (int64_t i = 0; i < value.num_elements(); ++i)
      value.data<float>()[i] = static_cast<float>(static_cast<double>(i % 5) * 0.1 + 0.05);
    Var(scope, name, value);
    Var(scope, name + "/Adagrad", shape, init::Constant(0.1));
  }
  for (const auto& [name, shape] : wide) {
    Var(scope, name, shape, init::Zeros());
    Var(scope, name + "/Ftrl", shape, init::Constant(0.1));
    Var(scope, name + "/Ftrl_1", shape, init::Zeros());
  }
  const Operation init = GlobalVariablesInitializer(scope);
  Saver saver(scope, {});
  ClientSession session = ClientSession::Create(scope).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  ASSERT_EQ(saver.Save(&session, Dir("run") + "/model.ckpt", {.global_step = 0}).status(), absl::OkStatus());

  Estimator estimator =
      DNNLinearCombinedClassifier(Config(), Wide(), {.columns = {x_, fc::Embedding(c_, 2)}, .hidden_units = {2}})
          .value();
  ASSERT_EQ(estimator.Train(SixExamples(kTwo)), absl::OkStatus());
  ExpectMetrics(estimator, kTwo,
                {{"accuracy", 0.5},
                 {"accuracy_baseline", 0.5},
                 {"auc", 1},
                 {"auc_precision_recall", 1},
                 {"average_loss", 0.681565},
                 {"label/mean", 0.5},
                 {"loss", 4.089392},
                 {"precision", 0.5},
                 {"prediction/mean", 0.526704},
                 {"recall", 1}});
  ExpectVariable(estimator, "dnn/hiddenlayer_0/kernel",
                 {0.050233f, 0.150492f, 0.250027f, 0.349819f, 0.450443f, 0.051345f});
  ExpectVariable(estimator, "dnn/input_from_feature_columns/input_layer/c_embedding/embedding_weights",
                 {0.049753f, 0.149381f, 0.250001f, 0.350032f, 0.450221f, 0.050558f});
  ExpectVariable(estimator, "dnn/logits/kernel", {0.052014f, 0.150419f});
  ExpectVariable(estimator, "linear/linear_model/c/weights", {-0.011077f, -0.002331f, 0.010992f});
  EXPECT_EQ(estimator.GetVariableNames().value().size(), 1 + 2 * deep.size() + 3 * wide.size());
}

TEST_F(CannedTest, NetworksLearn) {
  Estimator classifier =
      DNNClassifier(Config(), {.columns = {x_, fc::Embedding(c_, 2), fc::Indicator(c_)}, .hidden_units = {8, 4}},
                    {.n_classes = 3})
          .value();
  ASSERT_EQ(classifier.Train(SixExamples(kThree, 300)), absl::OkStatus());
  EXPECT_EQ(classifier.Evaluate(SixExamples(kThree, 1)).value().number("accuracy"), 1);
  Estimator regressor =
      DNNRegressor(Config("numbers"),
                   {.columns = {x_, fc::Embedding(c_, 2)}, .hidden_units = {8, 4}, .dropout = 0.05, .batch_norm = true})
          .value();
  // Long enough for the moving averages, whose momentum is 0.999.
  ASSERT_EQ(regressor.Train(SixExamples(kNumbers, 4000)), absl::OkStatus());
  EXPECT_LT(regressor.Evaluate(SixExamples(kNumbers, 1)).value().number("average_loss"), 0.7);
  const std::vector<std::string> names = regressor.GetVariableNames().value();
  for (const char* const name : {"gamma", "beta", "moving_mean", "moving_variance"}) {
    EXPECT_THAT(names, ::testing::Contains(absl::StrCat("dnn/hiddenlayer_0/batchnorm_0/", name)));
    EXPECT_THAT(names, ::testing::Contains(absl::StrCat("dnn/hiddenlayer_1/batchnorm_1/", name)));
  }
}

TEST_F(CannedTest, AStrategyTrainsTheSameModel) {
  const auto train = [&](const std::string& name, std::shared_ptr<Strategy> strategy) {
    RunConfigOptions options = Options(name);
    options.train_distribute = std::move(strategy);
    options.eval_distribute = options.train_distribute;
    Estimator estimator = DNNLinearCombinedRegressor(RunConfig::Of({}, options).value(), Wide(),
                                                     {.columns = {x_, fc::Embedding(c_, 2)}, .hidden_units = {4}})
                              .value();
    EXPECT_EQ(estimator.Train(SixSingleExamples(kNumbers), {.max_steps = 10}), absl::OkStatus());
    const StatusOr<EvalResults> results = estimator.Evaluate(SixSingleExamples(kNumbers));
    EXPECT_EQ(results.status(), absl::OkStatus());
    return results.ok() ? results->number("average_loss") : -1;
  };
  const double one = train("one", OneDeviceStrategy({.shards = 2}).value());
  const double two =
      train("two", MirroredStrategy({.devices = {"/device:CPU:0", "/device:CPU:1"}, .shards = 2}).value());
  EXPECT_GT(one, 0);
  EXPECT_NEAR(one, two, 1e-6);
}

TEST_F(CannedTest, TablesArePartitionedOverParameterServers) {
  const TaskConfig worker{.cluster = ClusterSpec::Of({{"ps", {"a:1", "b:1"}}, {"worker", {"c:1"}}}).value(),
                          .task = {"worker", 0}};
  const FeatureColumn big = fc::CategoricalWithIdentity("x", 200000);
  const auto devices = [&](const Partitioner& partitioner) {
    const Estimator estimator =
        DNNLinearCombinedRegressor(
            RunConfig::Of(worker, Options()).value(), {.columns = {big}},
            {.columns = {fc::Embedding(big, 200), fc::Embedding(fc::CategoricalWithIdentity("c", 9), 2)},
             .hidden_units = {4},
             .input_layer_partitioner = partitioner})
            .value();
    const InputFn input = [](const Scope&, const InputContext&) -> StatusOr<EstimatorInput> {
      const Tensor ids = Tensor::Of<int64_t>({1, 2});
      return EstimatorInput{.dataset = Dataset::FromElement({ids, ids, ids}), .features = {"x", "c"}};
    };
    StatusOr<estimator_internal::ModelGraph> graph = estimator_internal::BuildModel(
        {.mode = ModelMode::kTrain, .model = estimator.model_fn(), .config = estimator.config()}, input);
    EXPECT_EQ(graph.status(), absl::OkStatus());
    std::map<std::string, std::string> found;
    for (const Var& variable : TrainableVariables(graph->scope))
      found[variable.var_name()] = variable.handle().node()->requested_device();
    return found;
  };
  const std::string tables = "dnn/input_from_feature_columns/input_layer/";
  // 160 MB are two parts of at least 64 MB; small tables, and all others here, stay whole.
  std::map<std::string, std::string> found = devices(nullptr);
  EXPECT_EQ(found.size(), 9u);
  EXPECT_THAT(found[tables + "x_embedding/embedding_weights/part_0"], HasSubstr("/job:ps"));
  EXPECT_NE(found[tables + "x_embedding/embedding_weights/part_0"],
            found[tables + "x_embedding/embedding_weights/part_1"]);
  EXPECT_TRUE(found.contains(tables + "c_embedding/embedding_weights/part_0"));
  EXPECT_FALSE(found.contains(tables + "c_embedding/embedding_weights/part_1"));
  found = devices(FixedSizePartitioner(2));
  EXPECT_TRUE(found.contains(tables + "c_embedding/embedding_weights/part_1"));
}

TEST_F(CannedTest, ExamplesAreParsedInTheStep) {
  const InputFn lines = [](const Scope&, const InputContext&) -> StatusOr<EstimatorInput> {
    MR_ASSIGN_OR_RETURN(const Dataset text, Dataset::FromTensors({Tensor::Of<std::string>({"0.5,a,1", "-1,b,0"})}));
    return EstimatorInput{.dataset = text.Batch(2),
                          .features = {"line"},
                          .labels = {},
                          .transform = [](const Scope& s, OutputMap* features, OutputMap* labels) {
                            const std::vector<Output> fields = ops::DecodeCSV(
                                s, features->at("line"),
                                {Tensor::Of<float>({0}), Tensor::Of<std::string>({""}), Tensor::Of<int64_t>({0})});
                            *features = {{"x", fields[0]}, {"c", fields[1]}};
                            *labels = {{"label", fields[2]}};
                            return absl::OkStatus();
                          }};
  };
  Estimator estimator = LinearClassifier(Config(), Wide()).value();
  ASSERT_EQ(estimator.Train(lines), absl::OkStatus());
  EXPECT_EQ(estimator.Evaluate(lines).value().number("accuracy"), 1);
  std::map<std::string, Tensor> first;
  EXPECT_TRUE(estimator.Predict(lines).value()->Next(&first).value());
}

TEST_F(CannedTest, WhatIsWrongIsNamed) {
  const auto error = [](const StatusOr<Estimator>& estimator) { return std::string(estimator.status().message()); };
  EXPECT_THAT(error(DNNClassifier(Config(), {.hidden_units = {2}})), HasSubstr("the network has no feature columns"));
  EXPECT_THAT(error(DNNClassifier(Config(), {.columns = {x_}})), HasSubstr("hidden_units is empty"));
  EXPECT_THAT(error(DNNClassifier(Config(), {.columns = {x_}, .hidden_units = {0}})), HasSubstr("0 units"));
  EXPECT_THAT(error(DNNClassifier(Config(), {.columns = {x_}, .hidden_units = {2}, .dropout = 1})),
              HasSubstr("dropout is 1"));
  EXPECT_THAT(error(DNNClassifier(Config(), {.columns = {c_}, .hidden_units = {2}})),
              HasSubstr("feature column 'c' is not dense"));
  EXPECT_THAT(error(LinearRegressor(Config(), {.columns = {fc::Numeric("")}})), HasSubstr("has no key"));
  EXPECT_THAT(error(DNNLinearCombinedRegressor(Config(), {}, {})), HasSubstr("neither the linear model nor"));
  EXPECT_THAT(error(LinearClassifier(Config(), Wide(), {.n_classes = 1})), HasSubstr("n_classes is 1"));
  EXPECT_THAT(error(LinearClassifier(Config(), Wide(), {.label_vocabulary = {"a"}})), HasSubstr("has 1 labels"));
  EXPECT_THAT(error(LinearClassifier(Config(), Wide(), {.weight_column = c_})),
              HasSubstr("weight_column: the feature column 'c' is not a numeric column"));
  EXPECT_THAT(error(LinearRegressor(Config(), Wide(), {.label_dimension = 0})), HasSubstr("label_dimension is 0"));
  EXPECT_THAT(error(LinearEstimator(Config(), Wide(), nullptr)), HasSubstr("no head"));

  const InputFn three = SixExamples(kThree);
  EXPECT_THAT(TrainError(LinearClassifier(Config(), Wide()), three), HasSubstr("labels must be in [0, 2)"));
  EXPECT_THAT(TrainError(LinearClassifier(Config(), Wide()),
                         SixExamples(Tensor::Of<std::string>({"a", "b", "a", "b", "a", "b"}))),
              HasSubstr("the labels have type string, and the classifier has no label_vocabulary"));
  EXPECT_THAT(TrainError(LinearRegressor(Config(), Wide(), {.label_dimension = 2}), three), HasSubstr("[batch, 2]"));
  EXPECT_THAT(TrainError(LinearRegressor(Config(), {.columns = {fc::Numeric("height")}}), three),
              HasSubstr("feature column 'height': there is no feature 'height'; the features are: c, w, x"));
  EXPECT_THAT(TrainError(LinearClassifier(Config("weights"), Wide(), {.n_classes = 3, .weight_column = x_}), three),
              HasSubstr("the weights x must not be negative"));
}

TEST_F(CannedTest, AnExportPredictsTheSameWithoutTheFilesOfTheTraining) {
  const std::string words = JoinPath(Config().model_dir(), "words.txt");
  ASSERT_EQ(FileSystem::Posix()->MakeDirectories(Config().model_dir()), absl::OkStatus());
  ASSERT_EQ(ReplaceFile(FileSystem::Posix(), words, "a\nb\nc\n"), absl::OkStatus());
  const FeatureColumn from_file = fc::CategoricalWithVocabularyFile("c", words);
  Estimator estimator = DNNLinearCombinedClassifier(Config(), {.columns = {x_, c_}},
                                                    {.columns = {fc::Embedding(from_file, 4)}, .hidden_units = {8}})
                            .value();
  ASSERT_EQ(estimator.Train(SixExamples(kTwo)), absl::OkStatus());
  const Tensor expected = FirstPrediction(estimator, kTwo).at("probabilities");
  const std::string path =
      estimator
          .ExportSavedModel(JoinPath(Config().model_dir(), "export"),
                            RawServingInput({{"x", {DType::kFloat, {-1, 1}}}, {"c", {DType::kString, {-1, 1}}}}))
          .value();
  ASSERT_EQ(FileSystem::Posix()->Remove(words), absl::OkStatus());
  const auto model = LoadSavedModel({}, path).value();
  const auto predicted = model->Predict(
      "predict", {{"x", Tensor::Of<float>({1, 1}, {.1f})}, {"c", Tensor::Of<std::string>({1, 1}, {"a"})}});
  ASSERT_EQ(predicted.status(), absl::OkStatus());
  const Tensor& probabilities = predicted->at("probabilities");
  EXPECT_FLOAT_EQ(probabilities.data<float>()[0], expected.data<float>()[0]);
  EXPECT_FLOAT_EQ(probabilities.data<float>()[1], expected.data<float>()[1]);
}

}  // namespace
}  // namespace millrace
