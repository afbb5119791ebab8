#include "millrace/api/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

Tensor Steps(const Shape& shape, float scale, float shift = 0) {
  Tensor t(DType::kFloat, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    t.data<float>()[i] = static_cast<float>(i * 5 % 7 - 3) * scale + shift;
  }
  return t;
}
void ExpectFloats(const Tensor& got, const std::vector<float>& want) {
  EXPECT_THAT(Floats(got), Pointwise(FloatNear(2e-6f), want));
}

TEST(LayerNormalization, GivesTheDefinitionsValuesAndGradient) {
  const Scope s = Scope::NewRoot();
  const Var x(s, "x", ops::Const(s, Steps(Shape({2, 4}), 0.7f)));
  const auto steps = [](float scale, float shift) {
    return [=](const Scope& i, const Shape& shape, DType) { return ops::Const(i, Steps(shape, scale, shift)); };
  };
  const Output y =
      layers::LayerNormalization(s, x, {.beta_initializer = steps(0.1f, 0), .gamma_initializer = steps(0.5f, 1)});
  const Output loss = ops::Sum(s, ops::Sin(s, y), {0, 1});
  const Gradient g = Gradients(s, {loss}, {x})[0];
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<std::string> names;
  for (const Var& v : GlobalVariables(s)) names.push_back(v.var_name());
  EXPECT_THAT(names, ElementsAre("x", "layer_normalization/gamma", "layer_normalization/beta"));
  const Operation init = GlobalVariablesInitializer(s);
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_TRUE(session.Run(init).ok());
  const Tensors r = session.Run({y, g.dense()}).value();
  ExpectFloats(r[0], {0.285688f, 3.063364f, 0.390459f, -0.2f, -0.970684f, 1.094245f, -0.447122f, -0.2f});
  for (int i = 0; i < 8; ++i) {
    float around[2];
    for (int up = 0; up < 2; ++up) {
      Tensor moved = Steps(Shape({2, 4}), 0.7f);
      moved.data<float>()[i] += up == 1 ? 1e-2f : -1e-2f;
      around[up] = session.Run({{x, moved}}, {loss}).value()[0].scalar<float>();
    }
    EXPECT_NEAR(r[1].data<float>()[i], (around[1] - around[0]) / 2e-2f, 2e-3f) << i;
  }
}

TEST(Gelu, GivesTensorFlowsValues) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {-2.0, -0.5, 0.0, 0.7, 3.0});
  const Tensors r = RunOnce(s, {layers::Gelu(s, x), layers::Gelu(s, x, true)});
  ASSERT_EQ(r.size(), 2);
  ExpectFloats(r[0], {-0.045500f, -0.154269f, 0, 0.530625f, 2.995950f});
  ExpectFloats(r[1], {-0.045402f, -0.154286f, 0, 0.530570f, 2.996363f});
}

TEST(Attention, GivesTensorFlowsValues) {
  const Scope s = Scope::NewRoot();
  const Output q = ops::Const(s, Steps(Shape({1, 3, 4}), 0.5f)), k = ops::Const(s, Steps(Shape({1, 3, 4}), 0.4f, 0.1f)),
               v = ops::Const(s, Steps(Shape({1, 3, 2}), 1));
  const Output all = layers::ScaledDotProductAttention(s, q, k, v);
  const Output causal = layers::ScaledDotProductAttention(s, q, k, v, layers::CausalMask(s, 3));
  const Tensors r = RunOnce(s, {all, causal});
  ASSERT_EQ(r.size(), 2);
  ExpectFloats(r[0], {-2.323100f, 1.413090f, 0, -1.311442f, 2.323100f, 0.638724f});
  ExpectFloats(r[1], {-3, 2, -0.327291f, -1.563613f, 2.323100f, 0.638724f});
}

TEST(MultiHeadAttention, OfOneCausalPositionDoesNotSeeLaterOnes) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(5);
  const Output x = ops::Placeholder(s, DType::kFloat, {.shape = {-1, -1, 8}});
  const Output y = layers::MultiHeadAttention(s, x, x, {.heads = 2, .causal = true});
  const Gradient g = Gradients(s, {ops::Sum(s, y, {0, 1, 2})}, {x})[0];
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<std::string> names;
  for (const Var& v : GlobalVariables(s)) names.push_back(v.var_name());
  const std::string at = "multi_head_attention/";
  EXPECT_THAT(names, ElementsAre(at + "query/kernel", at + "query/bias", at + "key/kernel", at + "key/bias",
                                 at + "value/kernel", at + "value/bias", at + "output/kernel", at + "output/bias"));
  const Operation init = GlobalVariablesInitializer(s);
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_TRUE(session.Run(init).ok());
  Tensor in = Steps(Shape({2, 5, 8}), 0.3f);
  const Tensors before = session.Run({{x, in}}, {y, g.dense()}).value();
  EXPECT_EQ(before[0].shape(), in.shape());
  EXPECT_EQ(before[1].shape(), in.shape());
  // A change of position 3 of the first example.
  in.data<float>()[3 * 8] += 1;
  const Tensors after = session.Run({{x, in}}, {y}).value();
  for (int position = 0; position < 10; ++position) {
    float change = 0;
    for (int i = 0; i < 8; ++i) {
      change += std::abs(after[0].data<float>()[position * 8 + i] - before[0].data<float>()[position * 8 + i]);
    }
    EXPECT_EQ(change > 1e-4f, position == 3 || position == 4) << position;
  }
}

TEST(Positions, SinusoidalOnesAreSinesAndCosines) {
  const Scope s = Scope::NewRoot();
  const Output table = layers::SinusoidalPositions(s, 3, 4);
  const Output x = ops::Placeholder(s, DType::kFloat, {.shape = {-1, -1, 4}});
  const Output learnt = layers::LearntPositions(s, x, 6);
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {table, learnt}, {{x, Steps(Shape({1, 2, 4}), 1)}});
  ASSERT_EQ(r.size(), 2);
  ExpectFloats(r[0], {0, 1, 0, 1, std::sin(1.0f), std::cos(1.0f), std::sin(0.01f), std::cos(0.01f), std::sin(2.0f),
                      std::cos(2.0f), std::sin(0.02f), std::cos(0.02f)});
  EXPECT_EQ(r[1].shape(), Shape({2, 4}));
}

TEST(SequenceLoss, AveragesAsTensorFlowDoes) {
  const Scope s = Scope::NewRoot();
  const Output logits = ops::Const(s, Steps(Shape({2, 2, 3}), 0.5f));
  const Output targets = ops::Const(s, {{0, 2}, {1, 1}}), weights = ops::Const(s, {{1.0, 0.5}, {1.0, 0.0}});
  const auto loss = [&](bool time, bool batch) {
    return losses::SequenceLoss(s, logits, targets,
                                {.weights = weights, .average_across_timesteps = time, .average_across_batch = batch});
  };
  const Tensors r = RunOnce(s, {loss(true, true), loss(true, false), loss(false, true), loss(false, false),
                                losses::SequenceLoss(s, logits, targets)});
  ASSERT_EQ(r.size(), 5);
  ExpectFloats(r[0], {2.529471f});
  ExpectFloats(r[1], {2.371539f, 2.766368f});
  ExpectFloats(r[2], {2.818954f, 1.371539f});
  ExpectFloats(r[3], {2.871539f, 0.685770f, 2.766368f, 0});
  EXPECT_EQ(r[4].shape(), Shape());
}

TEST(Transformer, MistakesNameTheLayer) {
  const auto message = [](const std::function<void(const Scope&, const Output&)>& build) {
    const Scope s = Scope::NewRoot();
    build(s.SubScope("net"), ops::Placeholder(s.WithOpName("x"), DType::kFloat, {.shape = {2, 9, 6}}));
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  EXPECT_THAT(
      message([](const Scope& s, const Output&) { layers::LayerNormalization(s, ops::Placeholder(s, DType::kFloat)); }),
      HasSubstr("net/layer_normalization: the input"));
  EXPECT_THAT(message([](const Scope& s, const Output& x) { layers::MultiHeadAttention(s, x, x, {.heads = 4}); }),
              HasSubstr("net/multi_head_attention: the queries' depth 6 is not a multiple of 4"));
  EXPECT_THAT(message([](const Scope& s, const Output& x) {
                layers::MultiHeadAttention(s, x, x, {.heads = 2, .mask = ops::Const(s, {1.0, 0.0})});
              }),
              HasSubstr("must be bool"));
  EXPECT_THAT(message([](const Scope& s, const Output& x) { layers::LearntPositions(s, x, 8); }),
              HasSubstr("more time steps than there are positions, 8"));
  EXPECT_THAT(message([](const Scope& s, const Output& x) {
                losses::SequenceLoss(s, x, {{1, 2}});
              }),
              HasSubstr("net/sequence_loss: logits x:0 of shape [2,9,6]"));
}

}  // namespace
}  // namespace millrace
