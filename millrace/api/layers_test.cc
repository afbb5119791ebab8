#include "millrace/api/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Trains `model` on a fixed batch, and expects the loss to fall well below where it began.
void ExpectLearns(const std::function<Output(const Scope&, const Output&)>& model, const Shape& x_shape) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(7);
  const Output x = Output(Var(s, "x", x_shape, init::RandomNormal(), {.trainable = false}));
  const Output y = model(s, x);
  ASSERT_TRUE(s.ok()) << s.status();
  const Output target = Output(Var(s, "target", y.shape().AsShape(), init::RandomNormal(), {.trainable = false}));
  const Output loss = losses::MeanSquaredError(s, target, y);
  const Operation train = optimizers::Adam({.learning_rate = 0.02}).Minimize(s, loss);
  const Operation init = GlobalVariablesInitializer(s);
  StatusOr<ClientSession> session = ClientSession::Create(s);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->Run(init).ok());
  const float before = session->Run({loss}).value()[0].scalar<float>();
  for (int i = 0; i < 150; ++i) {
    const Status status = session->Run(train);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_LT(session->Run({loss}).value()[0].scalar<float>(), 0.7f * before);
}

TEST(Layers, AllLearn) {
  ExpectLearns([](const Scope& s,
                  const Output& x) { return layers::Dense(s, layers::Dense(s, x, 16, {.activation = ops::Relu}), 2); },
               {8, 4});
  ExpectLearns(
      [](const Scope& s, const Output& x) {
        Output h = layers::Conv2D(s, x, 8, {3, 3}, {.padding = layers::Padding::kSame, .activation = ops::Relu});
        h = layers::MaxPool2D(s, h, {2, 2});
        h = layers::Conv2D(s, h, 8, {2, 2}, {.kernel_initializer = init::HeNormal()});
        h = layers::AvgPool2D(s, h, {2, 2}, {.strides = {{1, 1}}, .padding = layers::Padding::kSame});
        return layers::Dense(s, layers::Flatten(s, h), 2);
      },
      {4, 6, 6, 3});
  ExpectLearns([](const Scope& s,
                  const Output& x) { return layers::Dense(s, layers::BatchNorm(s, layers::Dense(s, x, 16), true), 2); },
               {8, 4});
  ExpectLearns(
      [](const Scope& s, const Output& x) {
        return layers::Dense(
            s, layers::Dropout(s, layers::Dense(s, x, 32, {.activation = ops::Tanh}), 0.1, true, {.seed = 1}), 2);
      },
      {8, 4});
}

TEST(Layers, NamesAreTensorFlows) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Placeholder(s, DType::kFloat, {.shape = {-1, 4}});
  layers::Dense(s, x, 2);
  layers::Dense(s, x, 2);
  layers::Dense(s.WithOpName("logits"), x, 2, {.use_bias = false});
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<std::string> names;
  for (const Var& v : GlobalVariables(s)) names.push_back(v.var_name());
  EXPECT_THAT(names, ElementsAre("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias", "logits/kernel"));
}

TEST(Layers, ShapesFollow) {
  const Scope s = Scope::NewRoot();
  const Output image = ops::Placeholder(s, DType::kFloat, {.shape = {-1, 28, 28, 1}});
  const Output conv = layers::Conv2D(s, image, 32, {5, 5}, {.padding = layers::Padding::kSame});
  EXPECT_EQ(conv.shape(), PartialShape({-1, 28, 28, 32}));
  const Output pool = layers::MaxPool2D(s, conv, {2, 2});
  EXPECT_EQ(pool.shape(), PartialShape({-1, 14, 14, 32}));
  EXPECT_EQ(layers::Flatten(s, pool).shape(), PartialShape({-1, 14 * 14 * 32}));
  EXPECT_EQ(layers::BatchNorm(s, conv, true).shape(), PartialShape({-1, 28, 28, 32}));
  EXPECT_EQ(layers::Dense(s, pool, 7).shape(), PartialShape({-1, 14, 14, 7}));
  EXPECT_TRUE(s.ok()) << s.status();
}

TEST(Layers, MistakesNameTheLayer) {
  const auto message = [](auto build) {
    const Scope s = Scope::NewRoot();
    build(s, ops::Placeholder(s, DType::kFloat));
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  EXPECT_THAT(message([](const Scope& s, const Output& x) { layers::Dense(s.SubScope("net"), x, 3); }),
              HasSubstr("net/dense"));
  EXPECT_THAT(message([](const Scope& s, const Output& x) { layers::Conv2D(s, x, 3, {3, 3}); }), HasSubstr("conv2d"));
  EXPECT_THAT(message([](const Scope& s, const Output&) { layers::Dense(s, {{1.0}}, 0); }), HasSubstr("units"));
  EXPECT_THAT(message([](const Scope& s, const Output& x) { layers::BatchNorm(s, x, true); }),
              HasSubstr("batch_normalization"));
  EXPECT_THAT(message([](const Scope& s, const Output& x) { layers::Dropout(s, x, 1.5, true); }), HasSubstr("1.5"));
  EXPECT_THAT(message([](const Scope& s, const Output& x) { layers::Dropout(s, x, 0.5, 3); }), HasSubstr("training"));
}

TEST(Dropout, KeepsTheMeanInTrainingAndTheInputOtherwise) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(1);
  const Output x = ops::Fill(s, {10000}, 1.0);
  const Output training = ops::Placeholder(s, DType::kBool, {.shape = PartialShape::Scalar()});
  const Output fed = layers::Dropout(s, x, 0.25, training);
  const Output on = layers::Dropout(s, x, 0.25, true), off = layers::Dropout(s, x, 0.25, false);
  ClientSession session = ClientSession::Create(s).value();
  for (bool is_training : {true, false}) {
    StatusOr<Tensors> r = session.Run({{training, Tensor::Scalar(is_training)}}, {fed, is_training ? on : off});
    ASSERT_TRUE(r.ok()) << r.status();
    for (const Tensor& t : *r) {
      int zeros = 0;
      double sum = 0;
      for (float v : Floats(t)) {
        zeros += v == 0;
        sum += v;
        EXPECT_TRUE(v == 0 || std::abs(v - (is_training ? 1 / 0.75 : 1)) < 1e-6) << v;
      }
      EXPECT_NEAR(zeros, is_training ? 2500 : 0, is_training ? 200 : 0);
      EXPECT_NEAR(sum / 10000, 1, 0.03);
    }
  }
}

TEST(BatchNorm, NormalisesByTheBatchInTrainingAndByAveragesOtherwise) {
  for (bool fed : {false, true}) {
    const Scope s = Scope::NewRoot();
    const Output x = ops::Const(s, {{1.0, 10.0}, {3.0, 30.0}});
    const Output flag = ops::Placeholder(s, DType::kBool, {.shape = PartialShape::Scalar()});
    const Output y = fed ? layers::BatchNorm(s, x, flag, {.momentum = 0.9, .epsilon = 1e-5})
                         : layers::BatchNorm(s, x, true, {.momentum = 0.9, .epsilon = 1e-5});
    ASSERT_TRUE(s.ok()) << s.status();
    const Operation update = Group(s, UpdateOps(s));
    const Operation init = GlobalVariablesInitializer(s);
    const std::vector<Var> vars = GlobalVariables(s);
    ASSERT_EQ(vars.size(), 4);
    EXPECT_EQ(vars[2].var_name(), "batch_normalization/moving_mean");
    EXPECT_EQ(TrainableVariables(s).size(), 2);
    ClientSession session = ClientSession::Create(s).value();
    ASSERT_TRUE(session.Run(init).ok());
    const ClientSession::Feeds on = fed ? ClientSession::Feeds{{flag, Tensor::Scalar(true)}} : ClientSession::Feeds{};
    StatusOr<Tensors> r = session.Run(on, {y}, {update});
    ASSERT_TRUE(r.ok()) << r.status();
    EXPECT_NEAR((*r)[0].data<float>()[0], -1, 1e-3);
    EXPECT_NEAR((*r)[0].data<float>()[3], 1, 1e-3);
    const Tensors averages = session.Run({vars[2], vars[3]}).value();
    EXPECT_NEAR(averages[0].data<float>()[0], 0.2, 1e-5);  // a tenth of the way from 0 to 2
    EXPECT_NEAR(averages[0].data<float>()[1], 2, 1e-5);
    if (fed) {
      StatusOr<Tensors> off = session.Run({{flag, Tensor::Scalar(false)}}, {y}, {update});
      ASSERT_TRUE(off.ok()) << off.status();
      EXPECT_NEAR((*off)[0].data<float>()[0], (1 - 0.2) / std::sqrt(averages[1].data<float>()[0] + 1e-5), 1e-3);
      EXPECT_EQ(Floats(session.Run({vars[2]}).value()[0]), Floats(averages[0]));
    }
  }
}

TEST(Losses, GiveTheMeanOverExamples) {
  const Scope s = Scope::NewRoot();
  const Output logits = ops::Const(s, {{2.0, 0.0}, {0.0, 0.0}});
  const double first = std::log(1 + std::exp(-2)), second = std::log(2);
  const Tensors r =
      RunOnce(s, {losses::SparseSoftmaxCrossEntropy(s, {0, 1}, logits),
                  losses::SparseSoftmaxCrossEntropy(s, {0, 1}, logits, {.reduction = losses::Reduction::kSum}),
                  losses::SparseSoftmaxCrossEntropy(s, {0, 1}, logits, {.weights = {0, 3}}),
                  losses::SoftmaxCrossEntropy(s, {{1, 0}, {0, 1}}, logits),
                  losses::SoftmaxCrossEntropy(s, {{1, 0}, {0, 1}}, logits, {.label_smoothing = 0.5}),
                  losses::SigmoidCrossEntropy(s, {{1, 0}, {0, 1}}, logits),
                  losses::MeanSquaredError(s, {{1, 0}, {0, 1}}, logits), losses::L2Regularization(s, logits, 0.5),
                  losses::RegularizationLoss(s), metrics::Accuracy(s, {0, 1}, ops::Const(s, {{2.0, 0.0}, {3.0, 1.0}})),
                  metrics::NumCorrect(s, {0, 0}, ops::Const(s, {{2.0, 0.0}, {3.0, 1.0}}))});
  ASSERT_TRUE(s.ok()) << s.status();
  ASSERT_EQ(r.size(), 11);
  EXPECT_NEAR(r[0].scalar<float>(), (first + second) / 2, 1e-5);
  EXPECT_NEAR(r[1].scalar<float>(), first + second, 1e-5);
  EXPECT_NEAR(r[2].scalar<float>(), 3 * second, 1e-5);
  EXPECT_NEAR(r[3].scalar<float>(), (first + second) / 2, 1e-5);
  EXPECT_NEAR(r[4].scalar<float>(), (0.75 * first + 0.25 * (first + 2) + second) / 2, 1e-5);
  EXPECT_NEAR(r[5].scalar<float>(), (first + 3 * second) / 4, 1e-5);
  EXPECT_NEAR(r[6].scalar<float>(), (1 + 0 + 0 + 1) / 4.0, 1e-5);
  EXPECT_NEAR(r[7].scalar<float>(), 1, 1e-5);
  EXPECT_NEAR(r[8].scalar<float>(), 1, 1e-5);
  EXPECT_NEAR(r[9].scalar<float>(), 0.5, 1e-5);
  EXPECT_EQ(r[10].scalar<int64_t>(), 2);
}

}  // namespace
}  // namespace millrace
