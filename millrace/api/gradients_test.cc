#include "millrace/api/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Gradients, SumOverAllUsesOfAnInput) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {2.0, 3.0});
  const std::vector<Gradient> g = Gradients(s, {x * x, x * 5}, {x});
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {g[0].dense()});
  ASSERT_EQ(r.size(), 1);
  EXPECT_THAT(Floats(r[0]), ElementsAre(9, 11));
}

TEST(Gradients, AreEmptyWhereNothingConnects) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, 1.0), y = ops::Const(s, 2.0);
  const std::vector<Gradient> g = Gradients(s, {x * 2}, {x, y});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_FALSE(g[0].empty());
  EXPECT_TRUE(g[1].empty());
  EXPECT_TRUE(g[1].ToDense(s).empty());
}

TEST(Gradients, StopAtWhatCountsAsConstant) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, 3.0);
  const Output y = x * 2;
  const Tensors r =
      RunOnce(s, {Gradients(s, {x * y}, {x})[0].dense(), Gradients(s, {x * y}, {x}, {.stop_gradients = {y}})[0].dense(),
                  Gradients(s, {ops::StopGradient(s, x) * x}, {x})[0].dense(),
                  Gradients(s, {x * x}, {x}, {.grad_ys = {ops::Const(s, 10.0)}})[0].dense()});
  ASSERT_EQ(r.size(), 4);
  EXPECT_EQ(r[0].scalar<float>(), 12);
  EXPECT_EQ(r[1].scalar<float>(), 6);
  EXPECT_EQ(r[2].scalar<float>(), 3);
  EXPECT_EQ(r[3].scalar<float>(), 60);
}

TEST(Gradients, CountEveryReadingOfAVariable) {
  const Scope s = Scope::NewRoot();
  const Var v(s, "v", 3.0);
  const Output y = v * 2 + v.Read(s) * v.Read(s);
  const Tensors r = RunOnce(s, {Gradients(s, {y}, {v})[0].dense()});
  ASSERT_EQ(r.size(), 1);
  EXPECT_EQ(r[0].scalar<float>(), 8);
}

TEST(Gradients, OfGathersAreSlices) {
  const Scope s = Scope::NewRoot();
  const Var table(s, "table", {4, 2}, init::Ones());
  const Output rows = ops::GatherV2(s, table, {1, 3, 1}, 0);
  const std::vector<Gradient> g = Gradients(s, {rows * rows}, {table});
  ASSERT_TRUE(s.ok()) << s.status();
  ASSERT_TRUE(g[0].is_slices());
  const Tensors r = RunOnce(s, {g[0].slices().values, g[0].slices().indices, g[0].ToDense(s)});
  ASSERT_EQ(r.size(), 3);
  EXPECT_EQ(r[0].shape(), Shape({3, 2}));
  EXPECT_EQ(r[1].num_elements(), 3);
  EXPECT_THAT(Floats(r[2]), ElementsAre(0, 0, 4, 4, 0, 0, 2, 2));
}

TEST(Gradients, NameTheOpThatHasNone) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, 1.0);
  EXPECT_TRUE(Gradients(s, {Output()}, {x})[0].empty());
  EXPECT_THAT(std::string(s.status().message()), HasSubstr("ys[0]"));
}

// The gradients of sum(build(x)) by x and by the trainable variables, against differences.
void CheckByDifferences(const std::function<Output(const Scope&, const Output&)>& build, const Shape& shape) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(3);
  const Var x(s, "x", shape, init::RandomUniform({.min = -1, .max = 1}));
  const Output y = build(s, x);
  // Weights make the sum sensitive to every element.
  ASSERT_TRUE(s.ok()) << s.status();
  const Output weights = ops::Sin(s, ops::Cast(s, ops::Range(s, 0, ops::Size(s, y), 1), DType::kFloat) + 1);
  const Output flat = ops::Reshape(s, y, {-1});
  const Output loss = ops::Sum(s, flat * weights, {0});
  const std::vector<Var> vars = TrainableVariables(s);
  const std::vector<Gradient> grads = Gradients(s, {loss}, std::vector<Output>(vars.begin(), vars.end()));
  std::vector<Output> placeholders;
  std::vector<Operation> assigns;
  std::vector<Output> dense;
  for (size_t i = 0; i < vars.size(); ++i) {
    placeholders.push_back(ops::Placeholder(s, DType::kFloat, {.shape = vars[i].shape()}));
    assigns.push_back(vars[i].Assign(s, placeholders[i]));
    ASSERT_FALSE(grads[i].empty()) << vars[i].var_name();
    dense.push_back(grads[i].ToDense(s));
  }
  const Operation init = GlobalVariablesInitializer(s);
  ASSERT_TRUE(s.ok()) << s.status();
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_TRUE(session.Run(init).ok());
  const Tensors analytic = session.Run(dense).value();
  for (size_t i = 0; i < vars.size(); ++i) {
    const Tensor value = session.Run({vars[i]}).value()[0];
    const int64_t stride = std::max<int64_t>(1, value.num_elements() / 7);
    for (int64_t k = 0; k < value.num_elements(); k += stride) {
      double sides[2];
      for (int side = 0; side < 2; ++side) {
        Tensor moved = value.Clone();
        moved.data<float>()[k] += side == 0 ? -1e-2f : 1e-2f;
        ASSERT_TRUE(session.Run({{placeholders[i], moved}}, {}, {assigns[i]}).ok());
        sides[side] = session.Run({loss}).value()[0].scalar<float>();
      }
      ASSERT_TRUE(session.Run({{placeholders[i], value}}, {}, {assigns[i]}).ok());
      EXPECT_NEAR(analytic[i].data<float>()[k], (sides[1] - sides[0]) / 2e-2, 2e-2)
          << vars[i].var_name() << " element " << k;
    }
  }
}

TEST(Gradients, AgreeWithDifferencesThroughLayers) {
  CheckByDifferences([](const Scope& s, const Output& x) { return layers::Dense(s, x, 3, {.activation = ops::Tanh}); },
                     {4, 5});
  CheckByDifferences([](const Scope& s, const Output& x) { return layers::Dense(s, x, 3); }, {2, 3, 4});
  CheckByDifferences(
      [](const Scope& s, const Output& x) {
        return layers::Conv2D(s, x, 3, {3, 3}, {.padding = layers::Padding::kSame, .activation = ops::Tanh});
      },
      {2, 5, 5, 2});
  CheckByDifferences([](const Scope& s, const Output& x) { return layers::AvgPool2D(s, x, {2, 2}); }, {2, 4, 4, 2});
  CheckByDifferences([](const Scope& s, const Output& x) { return layers::BatchNorm(s, x, true); }, {6, 3});
  CheckByDifferences([](const Scope& s, const Output& x) { return layers::BatchNorm(s, x, true); }, {2, 3, 3, 2});
  CheckByDifferences([](const Scope& s, const Output& x) { return layers::BatchNorm(s, x, ops::Const(s, true)); },
                     {6, 3});
  CheckByDifferences([](const Scope& s, const Output& x) { return losses::SigmoidCrossEntropy(s, x * 0, x * 3); },
                     {3, 4});
  CheckByDifferences(
      [](const Scope& s, const Output& x) {
        return losses::SparseSoftmaxCrossEntropy(s, {1, 0, 2}, x, {.reduction = losses::Reduction::kNone});
      },
      {3, 4});
}

// What the nodes under `prefix` ask for, each once.
std::set<std::string> DevicesUnder(const Scope& s, absl::string_view prefix) {
  std::set<std::string> devices;
  for (const Node* node : s.graph()->nodes()) {
    if (absl::StartsWith(node->name(), prefix)) devices.insert(node->requested_device());
  }
  return devices;
}

// tanh(x)^2 with a layer on each of two tasks.
Output OverTwoTasks(const Scope& s, const Output& x) {
  const Output h = ops::Tanh(s.WithDevice("/job:worker/task:0").WithOpName("near"), x);
  return ops::Square(s.WithDevice("/job:worker/task:1").WithOpName("far"), h);
}

TEST(Gradients, FollowTheirOpsInAScopeThatSaysNothing) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {1.0, 2.0});
  Gradients(s, {OverTwoTasks(s, x)}, {x});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_THAT(DevicesUnder(s, "gradients/near_grad"), ElementsAre("/job:worker/task:0"));
  EXPECT_THAT(DevicesUnder(s, "gradients/far_grad"), ElementsAre("/job:worker/task:1"));
  EXPECT_THAT(DevicesUnder(s, "gradients/OnesLike"), ElementsAre("/job:worker/task:1"));
}

TEST(Gradients, GoWhereTheScopeSays) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {1.0, 2.0});
  Gradients(s.WithDevice("/job:worker/task:7"), {OverTwoTasks(s, x)}, {x});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_THAT(DevicesUnder(s, "gradients/"), ElementsAre("/job:worker/task:7"));
}

TEST(Gradients, FollowTheirOpsWhenAskedTo) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {1.0, 2.0});
  Gradients(s.WithDevice("/job:worker/task:7"), {OverTwoTasks(s, x)}, {x}, {.colocate_with_ops = true});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_THAT(DevicesUnder(s, "gradients/"), ElementsAre("/job:worker/task:0", "/job:worker/task:1"));
}

}  // namespace
}  // namespace millrace
