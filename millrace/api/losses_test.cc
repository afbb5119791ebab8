#include "millrace/api/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using losses::Reduction;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

const Input kLabels = {{0.0, 1.0, 0.5}, {1.0, 0.0, 0.25}};
const Input kPredictions = {{0.3, 0.9, 2.5}, {0.1, 0.2, 0.6}};
const Input kWeights = {{1.0, 0.0, 2.0}, {0.5, 1.0, 1.0}};

MATCHER(IsNear, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 2e-6f * (1 + std::abs(std::get<1>(arg))); }

// Calls a loss without weights, with weights and each reduction, and without one. What TensorFlow's tf.losses gives.
template <typename Options, typename Loss>
void ExpectLosses(const Loss& loss, Options options, const std::vector<float>& reduced, const std::vector<float>& each,
                  const Input& weights = kWeights) {
  const Scope s = Scope::NewRoot();
  std::vector<Output> all = {loss(s, options)};
  options.weights = weights;
  for (const Reduction reduction :
       {Reduction::kSumByNonzeroWeights, Reduction::kSum, Reduction::kMean, Reduction::kSumOverBatchSize}) {
    options.reduction = reduction;
    all.push_back(loss(s, options));
  }
  options.reduction = Reduction::kNone;
  all.push_back(loss(s, options));
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, all);
  ASSERT_EQ(r.size(), 6);
  std::vector<float> got;
  for (int i = 0; i < 5; ++i) got.push_back(r[i].scalar<float>());
  EXPECT_THAT(got, Pointwise(IsNear(), reduced));
  EXPECT_THAT(Floats(r[5]), Pointwise(IsNear(), each));
  EXPECT_EQ(losses::GetLosses(s).size(), 6);
}

TEST(Losses, AreTensorFlows) {
  ExpectLosses([](const Scope& s,
                  const losses::LossOptions& o) { return losses::AbsoluteDifference(s, kLabels, kPredictions, o); },
               losses::LossOptions(), {0.6416667f, 1.06f, 5.3f, 0.9636363f, 0.8833333f},
               {0.3f, 0, 4, 0.45f, 0.2f, 0.35f});
  ExpectLosses(
      [](const Scope& s, const losses::HuberOptions& o) { return losses::HuberLoss(s, kLabels, kPredictions, o); },
      losses::HuberOptions{.delta = 0.75}, {0.290625f, 0.552125f, 2.7606251f, 0.5019318f, 0.4601042f},
      {0.045f, 0, 2.4375f, 0.196875f, 0.02f, 0.06125f});
  ExpectLosses(
      [](const Scope& s, const losses::LossOptions& o) { return losses::HingeLoss(s, kLabels, kPredictions, o); },
      losses::LossOptions(), {0.9666667f, 1.25f, 6.25f, 1.1363636f, 1.0416666f}, {1.3f, 0, 2, 0.45f, 1.2f, 1.3f});
  ExpectLosses(
      [](const Scope& s, const losses::LogLossOptions& o) {
        return losses::LogLoss(s, kLabels, ops::Minimum(s, kPredictions, 0.95), o);
      },
      losses::LogLossOptions(), {0.8876998f, 1.1186116f, 5.5930576f, 1.0169196f, 0.9321763f},
      {0.3566748f, 0, 3.0470231f, 1.1512921f, 0.2231434f, 0.8149243f});
  ExpectLosses([](const Scope& s,
                  const losses::LossOptions& o) { return losses::MeanSquaredError(s, kLabels, kPredictions, o); },
               losses::LossOptions(), {0.8454166f, 1.7315f, 8.6575003f, 1.574091f, 1.4429168f},
               {0.09f, 0, 8, 0.405f, 0.04f, 0.1225f});
  ExpectLosses([](const Scope& s,
                  const losses::SoftmaxOptions& o) { return losses::SigmoidCrossEntropy(s, kLabels, kPredictions, o); },
               losses::SoftmaxOptions{.label_smoothing = 0.2},
               {0.8124037f, 1.0889919f, 5.4449596f, 0.9899927f, 0.9074933f},
               {0.8243552f, 0, 2.6577795f, 0.3271983f, 0.7781389f, 0.8574879f});
  ExpectLosses([](const Scope& s,
                  const losses::LossOptions& o) { return losses::CosineDistance(s, kLabels, kPredictions, 1, o); },
               losses::LossOptions(), {-0.2f, -0.3875f, -0.775f, -0.5166667f, -0.3875f}, {-1.15f, 0.375f},
               {{1.0}, {0.5}});
}

TEST(Losses, OfPairsAndClassesAreTensorFlows) {
  const Scope s = Scope::NewRoot();
  const Input one_hot = {{0, 1, 0}, {1, 0, 0}};
  const Output cube = ops::ExpandDims(s, ops::Const(s, {{0.3, 0.9, 2.5}, {0.1, 0.2, 0.6}}), 0);
  const Tensors r = RunOnce(
      s, {losses::MeanPairwiseSquaredError(s, kLabels, kPredictions),
          losses::MeanPairwiseSquaredError(s, kLabels, kPredictions, {.weights = {{1.0}, {0.5}}}),
          losses::MeanPairwiseSquaredError(s, kLabels, kPredictions, {.weights = {{1.0}, {0.0}}}),
          losses::SoftmaxCrossEntropy(s, one_hot, kPredictions, {.label_smoothing = 0.3}),
          losses::SoftmaxCrossEntropy(s, one_hot, kPredictions, {.weights = {0.0, 2.0}}),
          losses::SoftmaxCrossEntropy(s, one_hot, kPredictions, {.reduction = Reduction::kMean, .weights = {1.0, 2.0}}),
          losses::SparseSoftmaxCrossEntropy(s, {{0}, {2}}, kPredictions),
          losses::SparseSoftmaxCrossEntropy(s, {{0, 2}}, cube, {.reduction = Reduction::kNone})});
  ASSERT_EQ(r.size(), 8);
  const std::vector<float> expected = {3.4183333f, 2.9525f, 2.4866667f, 1.5174395f, 2.6455865f, 1.5058908f, 1.6474396f};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(r[i].scalar<float>(), expected[i], 1e-5) << i;
  EXPECT_EQ(r[7].shape(), Shape({1, 2}));
  EXPECT_THAT(Floats(r[7]), Pointwise(FloatNear(1e-5), {2.472086f, 0.8227932f}));
}

TEST(Losses, TheTotalIsOfAllLossesAndRegularization) {
  const Scope s = Scope::NewRoot();
  const Var w(s, "w", {{3.0, -4.0}});
  losses::AbsoluteDifference(s, {1.0}, {3.0});
  losses::MeanSquaredError(s, {1.0}, {4.0}, {.add_to_losses = false});
  losses::AddLoss(ops::Const(s, 10.0));
  const Output l1 = regularizers::L1(0.5)(s, w), l2 = regularizers::L2(0.1)(s, w);
  AddRegularizationLoss(l1);
  AddRegularizationLoss(regularizers::L1L2(0.5, 0.1)(s, w));
  EXPECT_EQ(losses::GetLosses(s).size(), 2);
  EXPECT_EQ(losses::GetRegularizationLosses(s).size(), 2);
  const Tensors r =
      RunOnce(s, {l1, l2, losses::GetTotalLoss(s), losses::GetTotalLoss(s, false), losses::RegularizationLoss(s)});
  ASSERT_EQ(r.size(), 5);
  EXPECT_FLOAT_EQ(r[0].scalar<float>(), 3.5f);
  EXPECT_FLOAT_EQ(r[1].scalar<float>(), 1.25f);
  EXPECT_FLOAT_EQ(r[2].scalar<float>(), 12 + 3.5f + 4.75f);
  EXPECT_FLOAT_EQ(r[3].scalar<float>(), 12);
  EXPECT_FLOAT_EQ(r[4].scalar<float>(), 8.25f);
}

TEST(Losses, LayersAddTheirRegularization) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {{1.0, 2.0}});
  layers::Dense(s, x, 2,
                {.kernel_initializer = init::Constant(0.5),
                 .bias_initializer = init::Constant(3),
                 .l2 = 1,
                 .kernel_regularizer = regularizers::L1(1),
                 .bias_regularizer = regularizers::L1(10),
                 .activity_regularizer = regularizers::L1(100)});
  ASSERT_EQ(losses::GetRegularizationLosses(s).size(), 4);
  const Tensors r = RunOnce(s, {losses::RegularizationLoss(s)});
  EXPECT_FLOAT_EQ(r[0].scalar<float>(), 2 + 0.5f + 60 + 900);
}

TEST(Losses, MistakesNameTheLoss) {
  const auto message = [](auto build) {
    const Scope s = Scope::NewRoot();
    build(s);
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  EXPECT_THAT(message([](const Scope& s) {
                losses::HuberLoss(s.SubScope("net"), {1.0, 2.0}, {{1.0}, {2.0}});
              }),
              HasSubstr("loss net/huber_loss: the labels have shape [2], the predictions [2,1]"));
  EXPECT_THAT(message([](const Scope& s) {
                losses::LogLoss(s, {{1.0}}, {{0.5}}, {.weights = {1.0, 2.0}});
              }),
              HasSubstr("weights of shape [2] do not fit losses of shape [1,1]"));
  EXPECT_THAT(message([](const Scope& s) { losses::HuberLoss(s, {1.0}, {1.0}, {.delta = 0}); }),
              HasSubstr("delta is 0"));
  EXPECT_THAT(message([](const Scope& s) { losses::GetTotalLoss(s); }), HasSubstr("no losses"));
  EXPECT_THAT(message([](const Scope& s) { regularizers::L2(-1)(s, {1.0}); }), HasSubstr("scale is -1"));
}

}  // namespace
}  // namespace millrace
