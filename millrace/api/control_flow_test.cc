#include "millrace/api/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Cond, RunsOneBranchAndItsGradient) {
  const Scope s = Scope::NewRoot();
  const Output p = ops::Placeholder(s, DType::kBool, {.shape = PartialShape::Scalar()});
  const Output x = ops::Const(s, {2.0, 3.0});
  const Output y = Cond(
      s, p, [&](const Scope&) { return x * x; }, [&](const Scope& b) { return ops::Exp(b, x) * 2.0f; });
  const Output g = Gradients(s, {y}, {x})[0].dense();
  ASSERT_TRUE(s.ok()) << s.status();
  Tensors r = RunOnce(s, {y, g}, {{p, Tensor::Scalar(true)}});
  EXPECT_THAT(Floats(r[0]), ElementsAre(4, 9));
  EXPECT_THAT(Floats(r[1]), ElementsAre(4, 6));
  r = RunOnce(s, {g}, {{p, Tensor::Scalar(false)}});
  EXPECT_NEAR(r[0].data<float>()[0], 2 * std::exp(2.0f), 1e-4);
}

TEST(Cond, RefusesBranchesOfDifferentTypes) {
  const Scope s = Scope::NewRoot();
  const Output p = ops::Const(s, true);
  Cond(
      s, p, [](const Scope& b) { return ops::Const(b, 1.0f); }, [](const Scope& b) { return ops::Const(b, 1); });
  EXPECT_THAT(s.status().ToString(), HasSubstr("different number or types"));
}

TEST(Case, TakesTheLastBranchWhenThereIsNoSuch) {
  const Scope s = Scope::NewRoot();
  const Output i = ops::Placeholder(s, DType::kInt32, {.shape = PartialShape::Scalar()});
  const Output x = ops::Const(s, 3.0);
  const auto times = [&](float f) { return Branch([&x, f](const Scope&) { return std::vector<Output>{x * f}; }); };
  const Output y = Case(s, i, {times(1), times(2), times(5)})[0];
  const Output g = Gradients(s, {y * y}, {x})[0].dense();
  ASSERT_TRUE(s.ok()) << s.status();
  for (const auto& [index, factor] : {std::pair{0, 1.0f}, {1, 2.0f}, {2, 5.0f}, {7, 5.0f}, {-1, 5.0f}}) {
    const Tensors r = RunOnce(s, {y, g}, {{i, Tensor::Scalar<int32_t>(index)}});
    EXPECT_EQ(r[0].scalar<float>(), 3 * factor);
    EXPECT_EQ(r[1].scalar<float>(), 2 * 3 * factor * factor);
  }
}

// x^n by multiplication.
Output Power(const Scope& s, const Output& x, const Output& n, const WhileOptions& options = {}) {
  return While(
      s, {ops::Const(s, 0), ops::OnesLike(s, x)}, [&](const Scope&, const std::vector<Output>& v) { return v[0] < n; },
      [&](const Scope&, const std::vector<Output>& v) {
        return std::vector<Output>{v[0] + 1, v[1] * x};
      },
      options)[1];
}

TEST(While, GivesTheLastValuesAndTheirGradients) {
  for (const int parallel : {1, 10}) {
    const Scope s = Scope::NewRoot();
    const Output x = ops::Const(s, {2.0, 3.0});
    const Output n = ops::Placeholder(s, DType::kInt32, {.shape = PartialShape::Scalar()});
    const Output y = Power(s, x, n, {.parallel_iterations = parallel});
    const Output g = Gradients(s, {y}, {x})[0].dense();
    ASSERT_TRUE(s.ok()) << s.status();
    Tensors r = RunOnce(s, {y, g}, {{n, Tensor::Scalar<int32_t>(4)}});
    EXPECT_THAT(Floats(r[0]), ElementsAre(16, 81));
    EXPECT_THAT(Floats(r[1]), ElementsAre(32, 108));
    r = RunOnce(s, {y, g}, {{n, Tensor::Scalar<int32_t>(0)}});
    EXPECT_THAT(Floats(r[0]), ElementsAre(1, 1));
    EXPECT_THAT(Floats(r[1]), ElementsAre(0, 0));
  }
}

TEST(While, EndsAtTheMaximumOfIterations) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, 2.0);
  const Output y = Power(s, x, ops::Const(s, 100), {.maximum_iterations = 3});
  const Output none = Power(s, x, ops::Const(s, 100), {.maximum_iterations = 0});
  const Output g = Gradients(s, {y}, {x})[0].dense();
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {y, none, g});
  EXPECT_EQ(r[0].scalar<float>(), 8);
  EXPECT_EQ(r[1].scalar<float>(), 1);
  EXPECT_EQ(r[2].scalar<float>(), 12);
}

TEST(While, AllowsShapesThatChange) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {1.0, 2.0});
  const Output y = While(
      s, {ops::Const(s, 0), x}, [](const Scope&, const std::vector<Output>& v) { return v[0] < 2; },
      [](const Scope& b, const std::vector<Output>& v) {
        return std::vector<Output>{v[0] + 1, ops::ConcatV2(b, {v[1], v[1]}, 0)};
      })[1];
  const Output g = Gradients(s, {y}, {x})[0].dense();
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {y, g});
  EXPECT_EQ(r[0].num_elements(), 8);
  EXPECT_THAT(Floats(r[1]), ElementsAre(4, 4));
}

TEST(While, HasGradientsThroughLoopsAndConditionalsWithinIt) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, 1.5), w = ops::Const(s, 0.5);
  // Even iterations multiply by w twice in a loop of their own, odd ones square.
  const Output y = While(
      s, {ops::Const(s, 0), x}, [](const Scope&, const std::vector<Output>& v) { return v[0] < 4; },
      [&](const Scope& b, const std::vector<Output>& v) {
        const Output even = ops::Equal(b, ops::FloorMod(b, v[0], 2), 0);
        const Output next = Cond(
            b, even,
            [&](const Scope& c) {
              return While(
                  c, {ops::Const(c, 0), v[1]}, [](const Scope&, const std::vector<Output>& u) { return u[0] < 2; },
                  [&](const Scope&, const std::vector<Output>& u) {
                    return std::vector<Output>{u[0] + 1, u[1] * w};
                  })[1];
            },
            [&](const Scope&) { return v[1] * v[1]; });
        return std::vector<Output>{v[0] + 1, next};
      })[1];
  const std::vector<Gradient> g = Gradients(s, {y}, {x, w});
  ASSERT_TRUE(s.ok()) << s.status();
  // (((x w^2)^2) w^2)^2 = x^4 w^12
  const Tensors r = RunOnce(s, {y, g[0].dense(), g[1].dense()});
  EXPECT_NEAR(r[0].scalar<float>(), std::pow(1.5, 4) * std::pow(0.5, 12), 1e-7);
  EXPECT_NEAR(r[1].scalar<float>(), 4 * std::pow(1.5, 3) * std::pow(0.5, 12), 1e-7);
  EXPECT_NEAR(r[2].scalar<float>(), 12 * std::pow(1.5, 4) * std::pow(0.5, 11), 1e-7);
}

// A conditional or a loop in the body that uses what is the same in all iterations does not run after the last one.
TEST(While, EndsThoughItsBodyChoosesByAnInvariant) {
  const Scope s = Scope::NewRoot();
  const Output flag = ops::Placeholder(s, DType::kBool), x = ops::Const(s, 1.0), k = ops::Const(s, 7);
  const std::vector<Output> chosen = While(
      s, {ops::Const(s, 0), x}, [](const Scope&, const std::vector<Output>& v) { return v[0] < 3; },
      [&](const Scope& b, const std::vector<Output>& v) {
        const Output next = Cond(
            b, flag, [&](const Scope&) { return v[1] * 2.0f; }, [](const Scope& c) { return ops::Const(c, 10.0); });
        return std::vector<Output>{v[0] + 1, next};
      });
  const Output g = Gradients(s, {chosen[1]}, {x})[0].dense();
  const std::vector<Output> nested = While(
      s, {ops::Const(s, 0), ops::Const(s, 0)}, [](const Scope&, const std::vector<Output>& v) { return v[0] < 3; },
      [&](const Scope& b, const std::vector<Output>& v) {
        const std::vector<Output> inner = While(
            b, {k, v[0]}, [](const Scope&, const std::vector<Output>& u) { return u[0] < 9; },
            [](const Scope&, const std::vector<Output>& u) {
              return std::vector<Output>{u[0] + 1, u[1] + 2};
            });
        return std::vector<Output>{v[0] + 1, inner[0] + inner[1]};
      });
  ASSERT_TRUE(s.ok()) << s.status();
  auto session = Session::Create({});
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->Extend(*s.graph()).ok());
  const RunOptions options{.timeout = absl::Seconds(60)};  // it does not end at all if the fact is false
  for (const bool value : {true, false}) {
    std::vector<Tensor> r;
    const Status status = (*session)->Run(options, {{flag.name(), Tensor::Scalar(value)}},
                                          {chosen[1].name(), g.name(), nested[1].name()}, {}, &r, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(r[0].scalar<float>(), value ? 8 : 10);
    EXPECT_EQ(r[1].scalar<float>(), value ? 8 : 0);
    EXPECT_EQ(r[2].scalar<int32_t>(), 9 + 2 + 4);
  }
}

TEST(While, SumsWeightGradientsOfAllIterations) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {{1.0, 2.0, 3.0, 4.0}});
  const Var w(s, "w", Tensor::FromSpan<float>(std::vector<float>(16, 0.25f), Shape({4, 4})));
  const Output weights = w.Read(s);
  const Output h = While(
      s, {ops::Const(s, 0), x}, [](const Scope&, const std::vector<Output>& v) { return v[0] < 3; },
      [&](const Scope& b, const std::vector<Output>& v) {
        return std::vector<Output>{v[0] + 1, ops::MatMul(b, v[1], weights)};
      })[1];
  const Output g = Gradients(s, {h}, {weights})[0].dense();
  // The same unrolled.
  Output u = x;
  for (int i = 0; i < 3; ++i) u = ops::MatMul(s, u, weights);
  const Output gu = Gradients(s, {u}, {weights})[0].dense();
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {g, gu});
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(r[0].data<float>()[i], r[1].data<float>()[i], 1e-5) << i;
}

TEST(While, CanBeStoppedThoughItNeverEnds) {
  const Scope s = Scope::NewRoot();
  const Output forever = While(
      s, {ops::Const(s, 0)}, [](const Scope& b, const std::vector<Output>&) { return ops::Const(b, true); },
      [](const Scope&, const std::vector<Output>& v) { return std::vector<Output>{v[0] + 1}; })[0];
  ASSERT_TRUE(s.ok()) << s.status();
  for (const bool expanded : {true, false}) {
    SessionOptions options;
    options.passes.inline_functions = expanded;
    auto session = Session::Create(options);
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE((*session)->Extend(*s.graph()).ok());
    std::vector<Tensor> results;
    const Status late =
        (*session)->Run({.timeout = absl::Milliseconds(50)}, {}, {forever.name()}, {}, &results, nullptr);
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
    Status status;
    std::thread running([&] {
      std::vector<Tensor> none;
      status = (*session)->Run({}, {}, {forever.name()}, {}, &none, nullptr);
    });
    EXPECT_TRUE((*session)->Close().ok());
    running.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  }
}

TEST(While, RefusesABodyOfAnotherType) {
  const Scope s = Scope::NewRoot();
  While(
      s, {ops::Const(s, 0)}, [](const Scope& b, const std::vector<Output>&) { return ops::Const(b, false); },
      [](const Scope& b, const std::vector<Output>&) { return std::vector<Output>{ops::Const(b, 1.0f)}; });
  EXPECT_THAT(s.status().ToString(), HasSubstr("for variable 0, which is int32"));
}

TEST(FunctionTest, IsCalledWithWhatItCaptured) {
  const Scope s = Scope::NewRoot();
  const Output w = ops::Const(s, 3.0);
  const Function f = Function::Define(s, "times", {{DType::kFloat}}, [&](const Scope&, const std::vector<Output>& a) {
    return std::vector<Output>{w * a[0], a[0] + 1.0f};
  });
  const Output x = ops::Const(s, 2.0);
  const std::vector<Output> once = f(s, {x});
  ASSERT_TRUE(s.ok()) << s.status();
  const std::vector<Output> twice = f(s, {once[0]});
  const std::vector<Gradient> g = Gradients(s, {twice[0]}, {x, w});
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {twice[0], once[1], g[0].dense(), g[1].dense()});
  EXPECT_EQ(r[0].scalar<float>(), 18);
  EXPECT_EQ(r[1].scalar<float>(), 3);
  EXPECT_EQ(r[2].scalar<float>(), 9);
  EXPECT_EQ(r[3].scalar<float>(), 12);
}

TEST(FunctionTest, ErrorsNameCallerAndInnerNode) {
  const Scope s = Scope::NewRoot();
  const Function f =
      Function::Define(s, "checked", {{DType::kFloat}}, [&](const Scope& b, const std::vector<Output>& a) {
        return std::vector<Output>{ops::CheckNumerics(b.WithOpName("check"), a[0], "not finite")};
      });
  const Output y = f(s.WithOpName("call"), {ops::Const(s, INFINITY)})[0];
  ASSERT_TRUE(s.ok()) << s.status();
  StatusOr<ClientSession> session = ClientSession::Create(s);
  EXPECT_THAT(session->Run({}, {y}).status().ToString(), HasSubstr("call/check"));
}

// n! by calling itself.
Function Factorial(const Scope& s) {
  const FunctionArg scalar = {DType::kFloat, PartialShape::Scalar()};
  const Function f = Function::Declare(s, "factorial", {scalar}, {scalar});
  f.DefineAs(s, [&](const Scope& b, const std::vector<Output>& a) {
    return std::vector<Output>{Cond(
        b, a[0] < 1.5f, [](const Scope& c) { return ops::Const(c, 1.0f); },
        [&](const Scope& c) { return a[0] * f(c, {a[0] - 1.0f})[0]; })};
  });
  return f;
}

TEST(FunctionTest, MayCallItself) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Placeholder(s, DType::kFloat, {.shape = PartialShape::Scalar()});
  const Output y = Factorial(s)(s, {x})[0];
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(Floats(RunOnce(s, {y}, {{x, Tensor::Scalar(5.0f)}})[0])[0], 120);
  EXPECT_EQ(Floats(RunOnce(s, {y}, {{x, Tensor::Scalar(1.0f)}})[0])[0], 1);
  EXPECT_TRUE(std::isinf(Floats(RunOnce(s, {y}, {{x, Tensor::Scalar(500.0f)}})[0])[0]));
}

TEST(FunctionTest, ThatNeverStopsCallingItselfIsAnError) {
  const Scope s = Scope::NewRoot();
  const FunctionArg scalar = {DType::kFloat, PartialShape::Scalar()};
  const Function f = Function::Declare(s, "forever", {scalar}, {scalar});
  f.DefineAs(s, [&](const Scope& b, const std::vector<Output>& a) { return f(b, {a[0] + 1.0f}); });
  const Output y = f(s, {ops::Const(s, 0.0f)})[0];
  ASSERT_TRUE(s.ok()) << s.status();
  StatusOr<ClientSession> session = ClientSession::Create(s);
  const Status status = session->Run({}, {y}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace millrace
