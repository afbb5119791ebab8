// The expected numbers are TensorFlow's (tf.compat.v1.metrics on the same batches), or computed by hand.
#include "millrace/api/streaming_metrics.h"

#include "gmock/gmock.h"
#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

using streaming::Metric;
using Batches = std::vector<std::vector<Tensor>>;
using MakeMetric = std::function<Metric(const Scope& scope, const std::vector<Output>& in)>;

// The value after all batches. The placeholders leave the batch's dimension open.
std::vector<float> After(const Batches& batches, const MakeMetric& make) {
  const Scope scope = Scope::NewRoot();
  std::vector<Output> in;
  for (const Tensor& tensor : batches[0]) {
    PartialShape shape(tensor.shape());
    shape.set_dim(0, -1);
    in.push_back(ops::Placeholder(scope, tensor.dtype(), {.shape = shape}));
  }
  const Metric metric = make(scope, in);
  const Operation init = LocalVariablesInitializer(scope);
  EXPECT_EQ(scope.status(), absl::OkStatus());
  EXPECT_TRUE(GlobalVariables(scope).empty());
  ClientSession session = ClientSession::Create(scope).value();
  EXPECT_EQ(session.Run(init), absl::OkStatus());
  for (const std::vector<Tensor>& batch : batches) {
    ClientSession::Feeds feeds;
    for (size_t i = 0; i < in.size(); ++i) feeds.emplace_back(in[i], batch[i]);
    EXPECT_EQ(session.Run(feeds, {}, {metric.update}).status(), absl::OkStatus());
  }
  const StatusOr<Tensors> value = session.Run({metric.value});
  EXPECT_EQ(value.status(), absl::OkStatus());
  return value.ok() ? Floats((*value)[0]) : std::vector<float>();
}

auto Near(std::vector<float> expected) { return Pointwise(FloatNear(2e-6), expected); }

Tensor Classes(std::vector<int64_t> values) { return Tensor::FromVector(values); }
Tensor Scores(std::vector<float> values) { return Tensor::FromVector(values); }

// Labels of two classes, predictions and weights.
const Batches& TwoBatches() {
  static const auto* const batches =
      new Batches{{Classes({0, 1, 1, 0, 1, 0}), Scores({.1, .8, .4, .35, .9, .6}), Scores({1, 2, .5, 1, 1, 3})},
                  {Classes({1, 1, 0, 0}), Scores({.7, .2, .3, .05}), Scores({1, 0, 2, 1})}};
  return *batches;
}
// Labels, predictions and weights of classes 0 to 2.
const Batches& ClassBatches() {
  static const auto* const batches =
      new Batches{{Classes({0, 1, 2, 2, 1}), Classes({0, 2, 2, 1, 1}), Scores({1, 2, 1, .5, 1})},
                  {Classes({0, 0, 1}), Classes({0, 1, 1}), Scores({1, 1, 3})}};
  return *batches;
}
const Batches& NumberBatches() {
  static const auto* const batches =
      new Batches{{Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Tensor::Of<float>({2, 2}, {1, 1, 5, 4})},
                  {Tensor::Of<float>({1, 2}, {5, 7}), Tensor::Of<float>({1, 2}, {4, 9})}};
  return *batches;
}
// Two labels for each example, scores of four classes, and weights.
const Batches& RankedBatches() {
  static const auto* const batches =
      new Batches{{Tensor::Of<int64_t>({2, 2}, {1, 3, 2, 3}),
                   Tensor::Of<float>({2, 4}, {.1, .5, .2, .2, .7, .1, .05, .15}), Scores({1, 2})},
                  {Tensor::Of<int64_t>({1, 2}, {0, 1}), Tensor::Of<float>({1, 4}, {.3, .2, .1, .4}), Scores({3})}};
  return *batches;
}

TEST(Streaming, MeansAreOverAllBatches) {
  EXPECT_THAT(After(NumberBatches(), [](const Scope& s, const auto& in) { return streaming::Mean(s, in[0]); }),
              Near({3.6666667}));
  EXPECT_THAT(After(NumberBatches(),
                    [](const Scope& s, const auto& in) {
                      return streaming::Mean(s, in[0], {.weights = Input({{1.0, 2.0}})});
                    }),
              Near({3.8888888}));
  EXPECT_THAT(After({{Scores({1, 2})}, {Scores({3, 6})}},
                    [](const Scope& s, const auto& in) {
                      return streaming::MeanTensor(s, ops::EnsureShape(s, in[0], PartialShape{2}));
                    }),
              Near({2, 4}));
  EXPECT_THAT(
      After(NumberBatches(), [](const Scope& s, const auto& in) { return streaming::PercentageBelow(s, in[0], 3.5); }),
      Near({.5}));
}

TEST(Streaming, ErrorsOfNumbers) {
  const auto value = [](Metric (*make)(const Scope&, const Input&, const Input&, const streaming::MetricOptions&)) {
    return After(NumberBatches(), [&](const Scope& s, const auto& in) { return make(s, in[0], in[1], {}); });
  };
  EXPECT_THAT(value(streaming::MeanAbsoluteError), Near({1}));
  EXPECT_THAT(value(streaming::MeanSquaredError), Near({1.6666666}));
  EXPECT_THAT(value(streaming::RootMeanSquaredError), Near({1.2909944}));
  EXPECT_THAT(
      After(NumberBatches(),
            [](const Scope& s, const auto& in) { return streaming::MeanRelativeError(s, in[0], in[1], in[0]); }),
      Near({.27539685}));
  EXPECT_THAT(After({{Tensor::Of<float>({2, 2}, {.6, .8, 1, 0}), Tensor::Of<float>({2, 2}, {.8, .6, 1, 0})}},
                    [](const Scope& s, const auto& in) { return streaming::MeanCosineDistance(s, in[0], in[1], 1); }),
              Near({.02}));
}

TEST(Streaming, OutcomesOfTwoClasses) {
  using Make = Metric (*)(const Scope&, const Input&, const Input&, const streaming::MetricOptions&);
  const std::vector<std::tuple<Make, float, float>> cases = {
      {streaming::TruePositives, 3, 4},   {streaming::TrueNegatives, 4, 5},      {streaming::FalsePositives, 1, 3},
      {streaming::FalseNegatives, 2, .5}, {streaming::Precision, .75, .5714286}, {streaming::Recall, .6, .8888889}};
  for (const auto& [make, plain, weighted] : cases) {
    const Make metric = make;
    EXPECT_THAT(After(TwoBatches(), [&](const Scope& s, const auto& in) { return metric(s, in[0], in[1] > .5, {}); }),
                Near({plain}));
    EXPECT_THAT(After(TwoBatches(),
                      [&](const Scope& s, const auto& in) { return metric(s, in[0], in[1] > .5, {.weights = in[2]}); }),
                Near({weighted}));
  }
  // Nothing was predicted to be positive: 0, not NaN.
  EXPECT_THAT(
      After(TwoBatches(), [](const Scope& s, const auto& in) { return streaming::Precision(s, in[0], in[1] > 2); }),
      Near({0}));
}

TEST(Streaming, ManyClasses) {
  EXPECT_THAT(
      After(ClassBatches(), [](const Scope& s, const auto& in) { return streaming::Accuracy(s, in[0], in[1]); }),
      Near({.625}));
  EXPECT_THAT(
      After(ClassBatches(),
            [](const Scope& s, const auto& in) { return streaming::Accuracy(s, in[0], in[1], {.weights = in[2]}); }),
      Near({.6666667}));
  using Make = Metric (*)(const Scope&, const Input&, const Input&, int64_t, const streaming::MetricOptions&);
  const auto value = [](Make make, bool weighted) {
    return After(ClassBatches(), [&](const Scope& s, const auto& in) {
      return make(s, in[0], in[1], 4, {.weights = weighted ? Input(in[2]) : Input()});
    });
  };
  EXPECT_THAT(value(streaming::MeanIou, false), Near({.4666667}));
  EXPECT_THAT(value(streaming::MeanIou, true), Near({.4952381}));
  EXPECT_THAT(value(streaming::MeanPerClassAccuracy, false), Near({.4583333}));
  EXPECT_THAT(value(streaming::MeanPerClassAccuracy, true), Near({.5}));
  EXPECT_THAT(value(streaming::ConfusionMatrix, false), ElementsAre(2, 1, 0, 0, 0, 2, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(value(streaming::ConfusionMatrix, true), ElementsAre(2, 1, 0, 0, 0, 4, 2, 0, 0, .5, 1, 0, 0, 0, 0, 0));
}

TEST(Streaming, AreasUnderCurves) {
  const std::vector<std::tuple<const char*, const char*, float>> cases = {{"ROC", "trapezoidal", .8399999},
                                                                          {"ROC", "minoring", .8399999},
                                                                          {"ROC", "majoring", .8399999},
                                                                          {"PR", "trapezoidal", .8746427},
                                                                          {"PR", "minoring", .8642856},
                                                                          {"PR", "majoring", .8849999},
                                                                          {"PR", "careful_interpolation", .8752524},
                                                                          {"ROC", "careful_interpolation", .8399999}};
  for (const auto& [curve, method, expected] : cases) {
    const streaming::AucOptions options{.curve = curve, .summation_method = method};
    EXPECT_THAT(
        After(TwoBatches(), [&](const Scope& s, const auto& in) { return streaming::Auc(s, in[0], in[1], options); }),
        Near({expected}))
        << curve << " " << method;
  }
  EXPECT_THAT(After(TwoBatches(),
                    [](const Scope& s, const auto& in) {
                      return streaming::Auc(s, in[0], in[1], {.weights = in[2], .num_thresholds = 11});
                    }),
              Near({.9513888}));
  EXPECT_THAT(
      After(TwoBatches(),
            [](const Scope& s, const auto& in) { return streaming::SensitivityAtSpecificity(s, in[0], in[1], .75); }),
      Near({.8}));
  EXPECT_THAT(
      After(TwoBatches(),
            [](const Scope& s, const auto& in) { return streaming::SpecificityAtSensitivity(s, in[0], in[1], .65); }),
      Near({1}));
}

TEST(Streaming, CountsAtThresholds) {
  using Make =
      Metric (*)(const Scope&, const Input&, const Input&, const std::vector<float>&, const streaming::MetricOptions&);
  const auto value = [](Make make, bool weighted) {
    return After(TwoBatches(), [&](const Scope& s, const auto& in) {
      return make(s, in[0], in[1], {.3f, .5f, .95f}, {.weights = weighted ? Input(in[2]) : Input()});
    });
  };
  EXPECT_THAT(value(streaming::TruePositivesAtThresholds, false), ElementsAre(4, 3, 0));
  EXPECT_THAT(value(streaming::TruePositivesAtThresholds, true), ElementsAre(4.5, 4, 0));
  EXPECT_THAT(value(streaming::TrueNegativesAtThresholds, false), ElementsAre(3, 4, 5));
  EXPECT_THAT(value(streaming::TrueNegativesAtThresholds, true), ElementsAre(4, 5, 8));
  EXPECT_THAT(value(streaming::FalsePositivesAtThresholds, false), ElementsAre(2, 1, 0));
  EXPECT_THAT(value(streaming::FalseNegativesAtThresholds, true), ElementsAre(0, .5, 4.5));
  EXPECT_THAT(value(streaming::PrecisionAtThresholds, false), Near({.6666667, .75, 0}));
  EXPECT_THAT(value(streaming::RecallAtThresholds, false), Near({.8, .6, 0}));
}

TEST(Streaming, TheBestClasses) {
  struct Expected {
    int64_t k;
    float recall, precision, average, recall_of_3, precision_of_3, weighted_recall, weighted_average;
  };
  for (const Expected& e : {Expected{1, 1.f / 6, 1.f / 3, 1.f / 3, 0, 0, 1.f / 12, 1.f / 6},
                            {2, .5, .5, 1.f / 3, .5, .5, .5, .2916667},
                            {3, .8333333, .5555556, .5555556, 1, .6666667, .8333333, .5138889}}) {
    const auto value = [&](const MakeMetric& make) { return After(RankedBatches(), make); };
    EXPECT_THAT(value([&](const Scope& s, const auto& in) { return streaming::RecallAtK(s, in[0], in[1], e.k); }),
                Near({e.recall}));
    EXPECT_THAT(value([&](const Scope& s, const auto& in) { return streaming::PrecisionAtK(s, in[0], in[1], e.k); }),
                Near({e.precision}));
    EXPECT_THAT(
        value([&](const Scope& s, const auto& in) { return streaming::AveragePrecisionAtK(s, in[0], in[1], e.k); }),
        Near({e.average}));
    EXPECT_THAT(value([&](const Scope& s, const auto& in) {
                  return streaming::RecallAtK(s, in[0], in[1], e.k, {.class_id = 3});
                }),
                Near({e.recall_of_3}));
    EXPECT_THAT(value([&](const Scope& s, const auto& in) {
                  return streaming::PrecisionAtK(s, in[0], in[1], e.k, {.class_id = 3});
                }),
                Near({e.precision_of_3}));
    EXPECT_THAT(value([&](const Scope& s, const auto& in) {
                  return streaming::RecallAtK(s, in[0], in[1], e.k, {.weights = in[2]});
                }),
                Near({e.weighted_recall}));
    EXPECT_THAT(value([&](const Scope& s, const auto& in) {
                  return streaming::AveragePrecisionAtK(s, in[0], in[1], e.k, {.weights = in[2]});
                }),
                Near({e.weighted_average}));
  }
  const Batches best = {{Classes({1, 2}), Tensor::Of<int64_t>({2, 2}, {1, 0, 0, 3})}};
  EXPECT_THAT(After(best, [](const Scope& s, const auto& in) { return streaming::RecallAtTopK(s, in[0], in[1]); }),
              Near({.5}));
  EXPECT_THAT(After(best, [](const Scope& s, const auto& in) { return streaming::PrecisionAtTopK(s, in[0], in[1]); }),
              Near({.25}));
  const Batches one_label = {{Classes({1, 2, 3}), Tensor::Of<float>({3, 4}, {0, 3, 2, 1, 9, 8, 7, 0, 1, 2, 3, 4})}};
  EXPECT_THAT(After(one_label, [](const Scope& s, const auto& in) { return streaming::InTopK(s, in[0], in[1], 2); }),
              Near({2.f / 3}));
}

TEST(Streaming, SumsOfSeveralEvaluatorsAddUp) {
  const Scope scope = Scope::NewRoot();
  const Output labels = ops::Placeholder(scope, DType::kInt64, {.shape = {-1}});
  const Output scores = ops::Placeholder(scope, DType::kFloat, {.shape = {-1}});
  const Metric auc = streaming::Auc(scope, labels, scores);
  const Operation init = LocalVariablesInitializer(scope);
  std::vector<Tensors> totals;
  for (const std::vector<Tensor>& batch : TwoBatches()) {  // one evaluator for each
    ClientSession session = ClientSession::Create(scope).value();
    ASSERT_EQ(session.Run(init), absl::OkStatus());
    ASSERT_TRUE(session.Run({{labels, batch[0]}, {scores, batch[1]}}, {}, {auc.update}).ok());
    totals.push_back(session.Run({auc.totals[0], auc.totals[1]}).value());
  }
  const Scope sum = Scope::NewRoot();
  std::vector<Output> added;
  for (size_t i = 0; i < 2; ++i) added.push_back(ops::AddV2(sum, totals[0][i], totals[1][i]));
  EXPECT_THAT(Floats(RunOnce(sum, {auc.result(sum, added)})[0]), Near({.8399999}));
}

TEST(Streaming, WhatIsWrongIsNamed) {
  const auto error = [](const MakeMetric& make) {
    const Scope scope = Scope::NewRoot();
    const Output classes = ops::Placeholder(scope, DType::kInt64, {.shape = {-1}});
    const Output cubes = ops::Placeholder(scope, DType::kInt64, {.shape = {-1, 2, 2}});
    make(scope, {classes, cubes});
    EXPECT_EQ(scope.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(scope.status().message());
  };
  EXPECT_THAT(error([](const Scope& s, const auto& in) { return streaming::MeanTensor(s, in[0]); }),
              HasSubstr("'mean_tensor' needs values of a known shape, not [?]"));
  EXPECT_THAT(error([](const Scope& s, const auto& in) { return streaming::MeanIou(s, in[0], in[0], 0); }),
              HasSubstr("'mean_iou': num_classes is 0"));
  EXPECT_THAT(error([](const Scope& s, const auto& in) { return streaming::Auc(s, in[0], in[0], {.curve = "DET"}); }),
              HasSubstr("curve is 'DET'"));
  EXPECT_THAT(error([](const Scope& s, const auto& in) {
                return streaming::Auc(s, in[0], in[0], {.summation_method = "lazy"});
              }),
              HasSubstr("summation_method is 'lazy'"));
  EXPECT_THAT(
      error([](const Scope& s, const auto& in) { return streaming::Auc(s, in[0], in[0], {.num_thresholds = 1}); }),
      HasSubstr("num_thresholds is 1"));
  EXPECT_THAT(error([](const Scope& s, const auto& in) { return streaming::RecallAtTopK(s, in[1], in[0]); }),
              HasSubstr("labels have shape [?,2,2]"));
  EXPECT_THAT(error([](const Scope& s, const auto& in) { return streaming::RecallAtThresholds(s, in[0], in[0], {}); }),
              HasSubstr("has no thresholds"));

  const Scope scope = Scope::NewRoot();
  const Output labels = ops::Placeholder(scope, DType::kInt64, {.shape = {-1}});
  const Metric iou = streaming::MeanIou(scope, labels, labels, 3);
  const Operation init = LocalVariablesInitializer(scope);
  ClientSession session = ClientSession::Create(scope).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  const Status status = session.Run({{labels, Classes({0, 3})}}, {}, {iou.update}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("labels must be from 0 to 2"));
}

}  // namespace
}  // namespace millrace
