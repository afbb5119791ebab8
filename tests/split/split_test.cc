// Partitioned graphs give the same results as whole ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/millrace.h"
#include "tests/split/split_session.h"

namespace millrace {
namespace {

using split::SplitOptions;
using split::SplitSession;

constexpr char kTask0[] = "/job:worker/task:0", kTask1[] = "/job:worker/task:1", kTask2[] = "/job:worker/task:2";

std::vector<std::string> Names(const std::vector<Output>& outputs) {
  std::vector<std::string> names;
  for (const Output& output : outputs) names.push_back(output.name());
  return names;
}

// Without requested devices, for a session in this process.
pb::GraphDef Local(pb::GraphDef def) {
  for (pb::NodeDef& node : *def.mutable_node()) node.clear_device();
  for (pb::FunctionDef& f : *def.mutable_library()->mutable_function()) {
    for (pb::NodeDef& node : *f.mutable_node_def()) node.clear_device();
  }
  return def;
}

void ExpectSame(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(want[i].dtype(), got[i].dtype());
    EXPECT_EQ(want[i].DebugString(), got[i].DebugString()) << "result " << i;
  }
}

// As placed, and with every node scattered, many times.
void ExpectSplitIsWhole(const Scope& scope, const std::vector<Output>& fetches, const std::vector<Feed>& feeds = {},
                        const std::vector<std::string>& init = {}) {
  const StatusOr<pb::GraphDef> def = scope.ToGraphDef();
  ASSERT_TRUE(def.ok()) << def.status();
  const auto whole = Session::Create().value();
  ASSERT_TRUE(whole->Extend(Local(*def)).ok());
  if (!init.empty()) {
    ASSERT_TRUE(whole->RunTargets(init).ok());
  }
  const auto want = whole->Run(feeds, Names(fetches));
  ASSERT_TRUE(want.ok()) << want.status();
  for (int seed = -1; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    SplitSession split({.tasks = 3,
                        .seed = seed,
                        .has_home = seed % 2 == 0,
                        .passes = seed % 3 == 0 ? PassOptions::None() : PassOptions()});
    ASSERT_TRUE(split.Extend(seed < 0 ? *def : Local(*def)).ok());
    std::vector<Tensor> got;
    if (!init.empty()) {
      const Status status = split.Run({.timeout = absl::Seconds(30)}, {}, {}, init, &got, nullptr);
      ASSERT_TRUE(status.ok()) << status;
    }
    const Status status = split.Run({.timeout = absl::Seconds(30)}, feeds, Names(fetches), {}, &got, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ExpectSame(*want, got);
  }
}

TEST(Split, DataEdgesOfEveryType) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Placeholder(root.WithDevice(kTask1), DType::kFloat);
  const Output text = ops::AsString(root.WithDevice(kTask1), x);
  const Output joined = ops::StringJoin(root.WithDevice(kTask2), {text, text});
  const Output flag = ops::Greater(root.WithDevice(kTask2), x, 0.0f);
  ExpectSplitIsWhole(root,
                     {joined, ops::LogicalNot(root.WithDevice(kTask0), flag), ops::Neg(root.WithDevice(kTask2), x)},
                     {{"Placeholder:0", Tensor::Of<float>({1.5, -2})}});
}

TEST(Split, VariablesOnServersAreUpdatedInOrder) {
  const Scope root = Scope::NewRoot();
  const Var v(root.WithDevice(kTask1), "v", Shape{}, init::Ones());
  const Operation update = v.AssignAdd(root, ops::Mul(root.WithDevice(kTask2), 3.0f, 2.0f));
  const Output after = v.Read(root.WithControlDependencies({update}));
  ExpectSplitIsWhole(root, {ops::Neg(root.WithDevice(kTask0), after)}, {}, {v.initializer().name()});
}

TEST(Split, OnlyTheTakenBranchRuns) {
  for (const float value : {1.0f, -1.0f}) {
    const Scope root = Scope::NewRoot();
    const Output x = ops::Placeholder(root.WithOpName("x"), DType::kFloat);
    const Output y = Cond(
        root, ops::Greater(root.WithDevice(kTask2), x, 0.0f),
        [&](const Scope& s) { return ops::Mul(s.WithDevice(kTask1), x, 2.0f); },
        [&](const Scope& s) { return ops::Exp(s.WithDevice(kTask2), ops::Neg(s, x)); });
    ExpectSplitIsWhole(root, {ops::Add(root, y, 1.0f)}, {{"x:0", Tensor::Scalar(value)}});
  }
}

// h = tanh-free arithmetic so that every order of work gives the same bits.
std::vector<Output> Loop(const Scope& root, const Output& n, const char* body_device, const char* other_device) {
  return While(
      root, {ops::Const(root, 0), ops::Const(root, 1.0f)},
      [&](const Scope& s, const std::vector<Output>& v) { return ops::Less(s, v[0], n); },
      [&](const Scope& s, const std::vector<Output>& v) {
        const Output doubled = ops::Mul(s.WithDevice(body_device), v[1], 2.0f);
        return std::vector<Output>{ops::AddV2(s, v[0], 1), ops::Sub(s.WithDevice(other_device), doubled, 0.5f)};
      });
}

TEST(Split, LoopsOverTasksOfAnyNumberOfIterations) {
  for (const int n : {0, 1, 7}) {
    const Scope root = Scope::NewRoot();
    const Output limit = ops::Placeholder(root.WithOpName("n"), DType::kInt32);
    ExpectSplitIsWhole(root, Loop(root, limit, kTask1, kTask2), {{"n:0", Tensor::Scalar(n)}});
  }
}

TEST(Split, LoopsWithinLoopsWithinBranches) {
  for (const int n : {0, 3}) {
    const Scope root = Scope::NewRoot();
    const Output limit = ops::Placeholder(root.WithOpName("n"), DType::kInt32);
    const auto outer = While(
        root, {ops::Const(root, 0), ops::Const(root, 1.0f)},
        [&](const Scope& s, const std::vector<Output>& v) { return ops::Less(s.WithDevice(kTask2), v[0], 4); },
        [&](const Scope& s, const std::vector<Output>& v) {
          const Output inner = Cond(
              s, ops::Equal(s, ops::FloorMod(s, v[0], 2), 0),
              [&](const Scope& t) { return Loop(t, limit, kTask1, kTask0)[1]; },
              [&](const Scope& t) { return ops::Add(t.WithDevice(kTask2), v[1], 1.0f); });
          return std::vector<Output>{ops::AddV2(s, v[0], 1), ops::Add(s.WithDevice(kTask1), v[1], inner)};
        });
    ExpectSplitIsWhole(root, outer, {{"n:0", Tensor::Scalar(n)}});
  }
}

TEST(Split, GradientsOfLoopsOverTasks) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Placeholder(root.WithOpName("x"), DType::kFloat);
  const auto out = While(
      root, {ops::Const(root, 0), x},
      [&](const Scope& s, const std::vector<Output>& v) { return ops::Less(s, v[0], 3); },
      [&](const Scope& s, const std::vector<Output>& v) {
        return std::vector<Output>{ops::AddV2(s, v[0], 1),
                                   ops::Mul(s.WithDevice(kTask1), v[1], ops::Mul(s.WithDevice(kTask2), x, v[1]))};
      });
  const Output gradient = Gradients(root, {out[1]}, {x})[0].dense();
  ExpectSplitIsWhole(root, {out[1], gradient}, {{"x:0", Tensor::Scalar(0.75f)}});
}

TEST(Split, AnOpInALoopThatOnlyWaitsRunsInEveryIteration) {
  const Scope root = Scope::NewRoot();
  const Var count(root.WithDevice(kTask1), "count", Shape{}, init::Zeros());
  const auto out = While(
      root, {ops::Const(root, 0)}, [&](const Scope& s, const std::vector<Output>& v) { return ops::Less(s, v[0], 5); },
      [&](const Scope& s, const std::vector<Output>& v) {
        const Operation add = count.AssignAdd(s, 1.0f);
        return std::vector<Output>{ops::AddV2(s.WithControlDependencies({add}), v[0], 1)};
      });
  const Output after = count.Read(root.WithControlDependencies({out[0]}));
  ExpectSplitIsWhole(root, {after}, {}, {count.initializer().name()});
}

TEST(Split, AFailureOnOneTaskEndsTheStepOnAll) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Placeholder(root.WithOpName("x"), DType::kFloat);
  const Output bad = ops::CheckNumerics(root.WithDevice(kTask1).WithOpName("check"), x, "not a number");
  const Output y = ops::Neg(root.WithDevice(kTask2), ops::Neg(root.WithDevice(kTask0), bad));
  SplitSession split({.tasks = 3});
  ASSERT_TRUE(split.Extend(*root.graph()).ok());
  std::vector<Tensor> got;
  const Status status =
      split.Run({.timeout = absl::Seconds(30)}, {{Feed("x:0", Tensor::Scalar(NAN))}}, {{y.name()}}, {}, &got, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("{{node check}}"));
}

}  // namespace
}  // namespace millrace
