#include "millrace/api/optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// x after each of `steps` steps on the loss x^2, from x = 1, -2, one element at a time; the
// gradient is 2x.
std::vector<std::vector<float>> Minimize(Optimizer& optimizer, int steps) {
  const Scope s = Scope::NewRoot();
  const Var x(s, "x", {1.0, -2.0});
  const Operation train = optimizer.Minimize(s, ops::Sum(s, x * x, {0}), {.global_step = GlobalStep(s)});
  const Operation init = GlobalVariablesInitializer(s);
  EXPECT_TRUE(s.ok()) << s.status();
  if (!s.ok()) return {};
  ClientSession session = ClientSession::Create(s).value();
  EXPECT_TRUE(session.Run(init).ok());
  std::vector<std::vector<float>> result;
  for (int i = 0; i < steps; ++i) {
    const Status status = session.Run(train);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return {};
    result.push_back(Floats(session.Run({x}).value()[0]));
  }
  EXPECT_EQ(session.Run({GlobalStep(s)}).value()[0].scalar<int64_t>(), steps);
  return result;
}

// What a rule for one number gives: step(g, x) returns the new x and keeps its own state.
using Rule = std::function<double(double gradient, double x)>;
void ExpectSteps(Optimizer& optimizer, const std::function<Rule()>& make_rule) {
  const int steps = 4;
  const auto got = Minimize(optimizer, steps);
  ASSERT_EQ(got.size(), steps);
  for (int element = 0; element < 2; ++element) {
    double x = element == 0 ? 1.0 : -2.0;
    const Rule rule = make_rule();
    for (int i = 0; i < steps; ++i) {
      x = rule(2 * x, x);
      EXPECT_NEAR(got[i][element], x, 1e-5) << optimizer.name() << " step " << i << " element " << element;
    }
  }
}

TEST(Optimizers, GradientDescent) {
  optimizers::GradientDescent optimizer({.learning_rate = 0.1});
  ExpectSteps(optimizer, [] { return [](double g, double x) { return x - 0.1 * g; }; });
}

TEST(Optimizers, Momentum) {
  for (bool nesterov : {false, true}) {
    optimizers::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9, .use_nesterov = nesterov});
    ExpectSteps(optimizer, [nesterov] {
      return [nesterov, a = 0.0](double g, double x) mutable {
        a = 0.9 * a + g;
        return x - 0.1 * (nesterov ? g + 0.9 * a : a);
      };
    });
  }
}

TEST(Optimizers, Adagrad) {
  optimizers::Adagrad optimizer({.learning_rate = 0.1, .initial_accumulator = 0.1});
  ExpectSteps(optimizer, [] {
    return [a = 0.1](double g, double x) mutable {
      a += g * g;
      return x - 0.1 * g / std::sqrt(a);
    };
  });
}

// x = 1, -2 after three steps on the sum of the squares of all rows, or of the second row twice; TensorFlow's.
void ExpectProximalSteps(const std::function<std::unique_ptr<Optimizer>(const Scope&)>& make,
                         const std::vector<std::vector<float>>& dense, const std::vector<float>& sparse) {
  for (const bool is_sparse : {false, true}) {
    const Scope s = Scope::NewRoot();
    const Var x(s, "x", {{1.0}, {-2.0}});
    const Output rows = is_sparse ? ops::GatherV2(s, x, {1, 1}, 0) : Output(x);
    const std::unique_ptr<Optimizer> optimizer = make(s);
    const Operation train = optimizer->Minimize(s, ops::Sum(s, rows * rows, {0, 1}), {.global_step = GlobalStep(s)});
    const Operation init = GlobalVariablesInitializer(s);
    ASSERT_TRUE(s.ok()) << s.status();
    ClientSession session = ClientSession::Create(s).value();
    ASSERT_TRUE(session.Run(init).ok());
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(session.Run(train), absl::OkStatus());
      const std::vector<float> got = Floats(session.Run({x}).value()[0]);
      EXPECT_NEAR(got[0], is_sparse ? 1 : dense[i][0], 2e-6) << optimizer->name() << " step " << i;
      EXPECT_NEAR(got[1], is_sparse ? sparse[i] : dense[i][1], 2e-6) << optimizer->name() << " step " << i;
    }
  }
}

TEST(Optimizers, ProximalStepsAreTensorFlows) {
  ExpectProximalSteps(
      [](const Scope&) {
        return std::make_unique<optimizers::ProximalGradientDescent>(
            optimizers::ProximalGradientDescentOptions{.learning_rate = 0.1, .l1 = 0.02, .l2 = 0.03});
      },
      {{0.795613f, -1.59322f}, {0.632593f, -1.26877f}, {0.502567f, -1.009986f}}, {-1.194417f, -0.712513f, -0.424235f});
  ExpectProximalSteps(
      [](const Scope&) {
        return std::make_unique<optimizers::ProximalAdagrad>(
            optimizers::ProximalAdagradOptions{.learning_rate = 0.1, .l1 = 0.02, .l2 = 0.03});
      },
      {{0.898907f, -1.898393f}, {0.830854f, -1.828307f}, {0.777187f, -1.772005f}},
      {-1.899117f, -1.829608f, -1.773791f});
  ExpectProximalSteps(
      [](const Scope& s) {
        return std::make_unique<optimizers::AdagradDA>(
            optimizers::AdagradDAOptions{.learning_rate = 0.1, .global_step = GlobalStep(s), .l1 = 0.02, .l2 = 0.03});
      },
      {{-0.097641f, 0.099116f}, {-0.086496f, 0.093498f}, {-0.076648f, 0.088192f}}, {0.099635f, 0.094257f, 0.089176f});
  const Scope s = Scope::NewRoot();
  const Var x(s, "x", {1.0});
  optimizers::AdagradDA({}).Minimize(s, ops::Sum(s, x * x, {0}));
  EXPECT_THAT(std::string(s.status().message()), HasSubstr("AdagradDA: global_step is not set"));
}

TEST(Optimizers, Adadelta) {
  optimizers::Adadelta optimizer({.learning_rate = 1.0, .rho = 0.95, .epsilon = 1e-6});
  ExpectSteps(optimizer, [] {
    return [a = 0.0, u = 0.0](double g, double x) mutable {
      a = 0.95 * a + 0.05 * g * g;
      const double d = std::sqrt(u + 1e-6) / std::sqrt(a + 1e-6) * g;
      u = 0.95 * u + 0.05 * d * d;
      return x - d;
    };
  });
}

TEST(Optimizers, Adam) {
  optimizers::Adam optimizer({.learning_rate = 0.1});
  ExpectSteps(optimizer, [] {
    return [m = 0.0, v = 0.0, b1 = 1.0, b2 = 1.0](double g, double x) mutable {
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      b1 *= 0.9;
      b2 *= 0.999;
      return x - 0.1 * std::sqrt(1 - b2) / (1 - b1) * m / (std::sqrt(v) + 1e-8);
    };
  });
}

TEST(Optimizers, RMSProp) {
  for (bool centered : {false, true}) {
    optimizers::RMSProp optimizer(
        {.learning_rate = 0.1, .decay = 0.9, .momentum = 0.5, .epsilon = 1e-6, .centered = centered});
    ExpectSteps(optimizer, [centered] {
      return [centered, ms = 1.0, mg = 0.0, mom = 0.0](double g, double x) mutable {
        ms = 0.9 * ms + 0.1 * g * g;
        mg = centered ? 0.9 * mg + 0.1 * g : 0.0;
        mom = 0.5 * mom + 0.1 * g / std::sqrt(ms - mg * mg + 1e-6);
        return x - mom;
      };
    });
  }
}

TEST(Optimizers, Ftrl) {
  for (double shrinkage : {0.0, 0.01}) {
    optimizers::Ftrl optimizer({.learning_rate = 0.5, .l1 = 0.01, .l2 = 0.02, .l2_shrinkage = shrinkage});
    ExpectSteps(optimizer, [shrinkage] {
      return [shrinkage, a = 0.1, l = 0.0](double g, double x) mutable {
        const double with_shrinkage = g + 2 * shrinkage * x;
        const double a_new = a + g * g;
        l += with_shrinkage - (std::sqrt(a_new) - std::sqrt(a)) / 0.5 * x;
        a = a_new;
        const double quadratic = std::sqrt(a) / 0.5 + 2 * 0.02;
        return std::abs(l) > 0.01 ? (std::copysign(0.01, l) - l) / quadratic : 0.0;
      };
    });
  }
}

TEST(Optimizers, NameSlotsAsTensorFlowDoes) {
  const Scope s = Scope::NewRoot();
  const Var w(s.SubScope("dense"), "kernel", {1.0});
  const Operation train = optimizers::Adam({}).Minimize(s, ops::Sum(s, w * w, {0}));
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<std::string> names;
  for (const Var& variable : GlobalVariables(s)) names.push_back(variable.var_name());
  EXPECT_THAT(names, UnorderedElementsAre("dense/kernel", "dense/kernel/Adam", "dense/kernel/Adam_1", "beta1_power",
                                          "beta2_power"));
  EXPECT_EQ(TrainableVariables(s).size(), 1);
}

TEST(Optimizers, SayWhenTheLossDependsOnNothing) {
  const Scope s = Scope::NewRoot();
  const Var w(s, "w", 1.0);
  EXPECT_TRUE(optimizers::GradientDescent({}).Minimize(s, ops::Const(s, 1.0)).empty());
  EXPECT_THAT(std::string(s.status().message()), HasSubstr("w"));
  const Scope t = Scope::NewRoot();
  EXPECT_TRUE(optimizers::GradientDescent({}).Minimize(t, ops::Const(t, 1.0)).empty());
  EXPECT_FALSE(t.ok());
}

TEST(Optimizers, LeaveOutVariablesWithoutGradient) {
  const Scope s = Scope::NewRoot();
  const Var a(s, "a", 1.0), b(s, "b", 1.0);
  optimizers::GradientDescent optimizer({.learning_rate = 0.25});
  const Operation train = optimizer.Minimize(s, a * a);
  const Operation init = GlobalVariablesInitializer(s);
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_TRUE(session.Run(init).ok());
  ASSERT_TRUE(session.Run(train).ok());
  const Tensors r = session.Run({a, b}).value();
  EXPECT_EQ(r[0].scalar<float>(), 0.5);
  EXPECT_EQ(r[1].scalar<float>(), 1);
}

// An embedding of 5 rows of which a step looks up {1, 3, 1}: the duplicates count together, and
// rows that a step does not touch stay (except under Adam, whose moments are zero for them).
void CheckSparse(Optimizer& sparse, Optimizer& dense) {
  const auto train = [](Optimizer& optimizer, bool as_slices) {
    const Scope s = Scope::NewRoot();
    const Var table(s, "table", {5, 2}, init::Constant({{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}}));
    const Output rows = ops::GatherV2(s, table, {1, 3, 1}, 0);
    std::vector<GradAndVar> gradients = optimizer.ComputeGradients(s, ops::Sum(s, rows * rows, {0, 1}));
    EXPECT_TRUE(s.ok()) << s.status();
    if (!s.ok()) return std::vector<float>();
    EXPECT_TRUE(gradients[0].gradient.is_slices());
    if (!as_slices) gradients[0].gradient = gradients[0].gradient.ToDense(s);
    const Operation step = optimizer.ApplyGradients(s, gradients);
    const Operation init = GlobalVariablesInitializer(s);
    EXPECT_TRUE(s.ok()) << s.status();
    if (!s.ok()) return std::vector<float>();
    ClientSession session = ClientSession::Create(s).value();
    EXPECT_TRUE(session.Run(init).ok());
    for (int i = 0; i < 3; ++i) {
      const Status status = session.Run(step);
      EXPECT_TRUE(status.ok()) << status;
    }
    return Floats(session.Run({table}).value()[0]);
  };
  const std::vector<float> a = train(sparse, true), b = train(dense, false);
  ASSERT_EQ(a.size(), 10);
  ASSERT_EQ(b.size(), 10);
  for (int i = 0; i < 10; ++i) EXPECT_NEAR(a[i], b[i], 1e-4) << sparse.name() << " element " << i;
  EXPECT_EQ(a[0], 1);
  EXPECT_NE(a[2], 3);
}

template <typename T, typename Options>
void CheckSparseOf(const Options& options) {
  T sparse(options), dense(options);
  CheckSparse(sparse, dense);
}

TEST(Optimizers, SparseUpdatesEqualDenseOnes) {
  CheckSparseOf<optimizers::GradientDescent>(optimizers::GradientDescentOptions{0.1});
  CheckSparseOf<optimizers::Momentum>(optimizers::MomentumOptions{0.1});
  CheckSparseOf<optimizers::Momentum>(optimizers::MomentumOptions{.learning_rate = 0.1, .use_nesterov = true});
  CheckSparseOf<optimizers::Adagrad>(optimizers::AdagradOptions{0.1});
  CheckSparseOf<optimizers::Adadelta>(optimizers::AdadeltaOptions{0.1});
  CheckSparseOf<optimizers::Adam>(optimizers::AdamOptions{0.1});
  CheckSparseOf<optimizers::RMSProp>(optimizers::RMSPropOptions{0.1});
  CheckSparseOf<optimizers::RMSProp>(optimizers::RMSPropOptions{.learning_rate = 0.1, .centered = true});
}

TEST(Optimizers, FollowASchedule) {
  const Scope s = Scope::NewRoot();
  const Var x(s, "x", 1.0);
  const Var step = GlobalStep(s);
  const Output rate = schedules::PiecewiseConstant(s, step, {0}, {0.5, 0.25});
  const Operation train =
      optimizers::GradientDescent({.learning_rate = rate}).Minimize(s, x * 1.0, {.global_step = step});
  const Operation init = GlobalVariablesInitializer(s);
  ASSERT_TRUE(s.ok()) << s.status();
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_TRUE(session.Run(init).ok());
  ASSERT_TRUE(session.Run(train).ok());
  EXPECT_EQ(session.Run({x}).value()[0].scalar<float>(), 0.5);
  ASSERT_TRUE(session.Run(train).ok());
  EXPECT_EQ(session.Run({x}).value()[0].scalar<float>(), 0.25);
}

TEST(Clipping, ByValueAndNorm) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {3.0, -4.0});
  const Tensors r =
      RunOnce(s, {ClipByValue(s, x, -1, 2), ClipByNorm(s, x, 1), ClipByNorm(s, x, 10), ClipByNorm(s, x * 0, 1)});
  ASSERT_EQ(r.size(), 4);
  EXPECT_THAT(Floats(r[0]), ElementsAre(2, -1));
  EXPECT_NEAR(r[1].data<float>()[0], 0.6, 1e-6);
  EXPECT_NEAR(r[1].data<float>()[1], -0.8, 1e-6);
  EXPECT_NEAR(r[2].data<float>()[1], -4, 1e-6);
  EXPECT_THAT(Floats(r[3]), ElementsAre(0, 0));
}

TEST(Clipping, ByGlobalNormScalesAllAlike) {
  const Scope s = Scope::NewRoot();
  const Output a = ops::Const(s, {3.0, 0.0}), b = ops::Const(s, 4.0);
  const Gradient slices = IndexedSlices{b, ops::Const(s, 0), ops::Const(s, {1})};
  const auto [clipped, norm] = ClipByGlobalNorm(s, {a, Gradient(), slices}, 2.5);
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_TRUE(clipped[1].empty());
  ASSERT_TRUE(clipped[2].is_slices());
  const auto [same, norm2] = ClipByGlobalNorm(s, {a}, 100);
  const auto [broken, norm3] = ClipByGlobalNorm(s, {a / 0}, 1);
  const Tensors r =
      RunOnce(s, {norm, clipped[0].dense(), clipped[2].slices().values, same[0].dense(), broken[0].dense()});
  ASSERT_EQ(r.size(), 5);
  EXPECT_NEAR(r[0].scalar<float>(), 5, 1e-5);
  EXPECT_NEAR(r[1].data<float>()[0], 1.5, 1e-5);
  EXPECT_NEAR(r[2].scalar<float>(), 2, 1e-5);
  EXPECT_NEAR(r[3].data<float>()[0], 3, 1e-5);
  EXPECT_TRUE(std::isnan(r[4].data<float>()[0]));
}

}  // namespace
}  // namespace millrace
