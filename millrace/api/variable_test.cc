#include "millrace/api/variable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "absl/strings/match.h"
#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

TEST(Var, IsNamedAsInTensorFlow) {
  const Scope root = Scope::NewRoot();
  const Var w(root.SubScope("layer"), "w", {2, 3}, init::Zeros());
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(w.var_name(), "layer/w");
  EXPECT_EQ(w.handle().node()->AttrOr<std::string>("shared_name", ""), "layer/w");
  EXPECT_EQ(w.name(), "layer/w/Read/ReadVariableOp:0");
  EXPECT_EQ(w.initializer().name(), "layer/w/Assign");
  EXPECT_EQ(w.shape().AsShape(), Shape({2, 3}));
  EXPECT_EQ(Var(root.SubScope("layer"), "w", {1}, init::Zeros()).var_name(), "layer_1/w");
  EXPECT_EQ(GlobalVariables(root).size(), 2);
}

TEST(Var, KeepsItsValueBetweenSteps) {
  const Scope s = Scope::NewRoot();
  const Var v(s, "v", {1.0, 2.0});
  const Operation add = v.AssignAdd(s, {10, 20});
  const Operation sub = v.AssignSub(s, {1, 1});
  const Operation set = v.Assign(s, {0, 0});
  const Operation init = GlobalVariablesInitializer(s);
  ClientSession session = ClientSession::Create(s).value();
  EXPECT_EQ(session.Run({v}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(session.Run({v}).status().message()), HasSubstr("v"));
  ASSERT_TRUE(session.Run(init).ok());
  ASSERT_TRUE(session.Run(add).ok());
  ASSERT_TRUE(session.Run(sub).ok());
  EXPECT_THAT(Floats(session.Run({v}).value()[0]), ElementsAre(10, 21));
  ASSERT_TRUE(session.Run(set).ok());
  EXPECT_THAT(Floats(session.Run({v}).value()[0]), ElementsAre(0, 0));
}

TEST(Var, ReadSeesWhatItsControlDependenciesDid) {
  const Scope s = Scope::NewRoot();
  const Var v(s, "v", 1.0);
  const Output after = v.Read(s.WithControlDependencies({v.AssignAdd(s, 1)}));
  const Tensors r = RunOnce(s, {after});
  ASSERT_EQ(r.size(), 1);
  EXPECT_EQ(r[0].scalar<float>(), 2);
}

TEST(Var, TypesAndCollections) {
  const Scope s = Scope::NewRoot();
  const Var a(s, "a", 5, {.dtype = DType::kInt64, .trainable = false});
  const Var b(s, "b", {3}, init::Constant(7), {.dtype = DType::kDouble});
  const Var c(s, "c", {2}, init::Constant({1.5, 2.5}));
  const Var d(s, "d", {2}, init::Zeros(), {.dtype = DType::kString, .trainable = false});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(TrainableVariables(s).size(), 2);
  const Tensors r = RunOnce(s, {a, b, c, d});
  ASSERT_EQ(r.size(), 4);
  EXPECT_EQ(r[0].scalar<int64_t>(), 5);
  EXPECT_THAT(r[1].flat<double>(), ElementsAre(7, 7, 7));
  EXPECT_THAT(Floats(r[2]), ElementsAre(1.5, 2.5));
  EXPECT_THAT(r[3].flat<std::string>(), ElementsAre("", ""));
}

TEST(Var, MistakesAreTold) {
  const Scope s = Scope::NewRoot();
  const Var v(s.SubScope("layer"), "v", {3}, init::Constant({1.0, 2.0}));
  EXPECT_TRUE(v.empty());
  EXPECT_THAT(std::string(s.status().message()), HasSubstr("layer/v"));
  const Scope t = Scope::NewRoot();
  const Var w(t, "w", Input());
  EXPECT_THAT(std::string(t.status().message()), HasSubstr("w"));
}

TEST(GlobalStep, IsOneVariableForTheGraph) {
  const Scope s = Scope::NewRoot();
  const Var first = GlobalStep(s.SubScope("a"));
  const Var second = GlobalStep(s);
  EXPECT_EQ(first.var_name(), "global_step");
  EXPECT_EQ(first.handle().node(), second.handle().node());
  EXPECT_EQ(first.dtype(), DType::kInt64);
  EXPECT_FALSE(first.trainable());
}

struct Moments {
  double mean, stddev, min, max;
};
Moments MomentsOf(const Tensor& t) {
  const std::vector<float> v = Floats(t);
  Moments m{};
  m.mean = std::accumulate(v.begin(), v.end(), 0.0) / v.size();
  for (float x : v) m.stddev += (x - m.mean) * (x - m.mean);
  m.stddev = std::sqrt(m.stddev / v.size());
  m.min = *std::min_element(v.begin(), v.end());
  m.max = *std::max_element(v.begin(), v.end());
  return m;
}

TEST(Initializers, HaveTheDistributionTheyPromise) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(1);
  const Shape shape({200, 300});
  const Var normal(s, "normal", shape, init::RandomNormal({.mean = 2, .stddev = 3}));
  const Var truncated(s, "truncated", shape, init::TruncatedNormal({.stddev = 0.1}));
  const Var uniform(s, "uniform", shape, init::RandomUniform({.min = -1, .max = 3}));
  const Var glorot(s, "glorot", shape, init::GlorotUniform());
  const Var glorot_normal(s, "glorot_normal", shape, init::GlorotNormal());
  const Var he(s, "he", shape, init::HeNormal());
  const Var he_uniform(s, "he_uniform", {3, 3, 50, 60}, init::HeUniform());
  const Tensors r = RunOnce(s, {normal, truncated, uniform, glorot, glorot_normal, he, he_uniform});
  ASSERT_EQ(r.size(), 7);
  EXPECT_NEAR(MomentsOf(r[0]).mean, 2, 0.1);
  EXPECT_NEAR(MomentsOf(r[0]).stddev, 3, 0.1);
  EXPECT_LE(MomentsOf(r[1]).max, 0.2);
  EXPECT_GE(MomentsOf(r[1]).min, -0.2);
  EXPECT_NEAR(MomentsOf(r[1]).stddev, 0.088, 0.002);
  EXPECT_NEAR(MomentsOf(r[2]).mean, 1, 0.05);
  EXPECT_GE(MomentsOf(r[2]).min, -1);
  EXPECT_LE(MomentsOf(r[2]).max, 3);
  const double limit = std::sqrt(6.0 / 500);
  EXPECT_NEAR(MomentsOf(r[3]).max, limit, limit / 50);
  EXPECT_LE(MomentsOf(r[3]).max, limit);
  EXPECT_NEAR(MomentsOf(r[4]).stddev, std::sqrt(2.0 / 500), 0.002);
  EXPECT_NEAR(MomentsOf(r[5]).stddev, std::sqrt(2.0 / 200), 0.002);
  EXPECT_NEAR(MomentsOf(r[6]).max, std::sqrt(6.0 / 450), 0.002);
}

TEST(Initializers, AreRepeatableWithAGraphSeed) {
  const auto draw = [](int64_t seed) {
    const Scope s = Scope::NewRoot();
    s.SetRandomSeed(seed);
    const Var a(s, "a", {4}, init::GlorotUniform()), b(s, "b", {4}, init::GlorotUniform());
    const Tensors r = RunOnce(s, {a, b});
    return r.size() == 2 ? std::make_pair(Floats(r[0]), Floats(r[1]))
                         : std::pair<std::vector<float>, std::vector<float>>();
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_NE(draw(1).first, draw(1).second);
}

TEST(Session, PicksUpOpsBuiltAfterItWasMade) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Placeholder(s.WithOpName("x"), DType::kFloat);
  ClientSession session = ClientSession::Create(s).value();
  EXPECT_EQ(session.Run({{x, Tensor::Scalar(2.0f)}}, {x * 2}).value()[0].scalar<float>(), 4);
  EXPECT_EQ(session.Run({{x, Tensor::Scalar(2.0f)}}, {x * 3}).value()[0].scalar<float>(), 6);
  const Step step = session.MakeStep({x}, {x * 4}).value();
  EXPECT_EQ(step({Tensor::Scalar(2.0f)}).value()[0].scalar<float>(), 8);
  EXPECT_EQ(session.Run({Output()}).status().code(), absl::StatusCode::kInvalidArgument);
  ops::Identity(s, Output());
  EXPECT_EQ(session.Run({{x, Tensor::Scalar(2.0f)}}, {x}).status(), s.status());
}

TEST(Var, ItsInitialValueIsMadeWhereItIs) {
  const Scope root =
      Scope::NewRoot().WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = 2, .worker_device = "/job:worker/task:0"}));
  const Var a(root, "a", {2, 3}, init::GlorotUniform()), b(root, "b", 1.0);
  ASSERT_TRUE(root.ok()) << root.status();
  int made = 0;
  for (const Node* node : root.graph()->nodes()) {
    const bool is_a = absl::StartsWith(node->name(), "a"), is_b = absl::StartsWith(node->name(), "b");
    made += is_a + is_b;
    EXPECT_EQ(node->requested_device(), is_a ? "/job:ps/task:0" : "/job:ps/task:1") << node->name();
  }
  EXPECT_GT(made, 8);
}

TEST(Var, AnInitialValueThatExistsStaysWhereItIs) {
  const Scope root = Scope::NewRoot();
  const Output value = ops::Const(root.WithDevice("/job:worker/task:0"), 1.0);
  const Var v(root.WithDevice("/job:ps/task:0"), "v", value);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(value.node()->requested_device(), "/job:worker/task:0");
  EXPECT_EQ(v.initializer().node()->requested_device(), "/job:ps/task:0");
}

TEST(Var, IsReadAndChangedWhereItIs) {
  const Scope root = Scope::NewRoot();
  const Var v(root.WithDevice("/job:ps/task:0"), "v", 1.0);
  const Scope worker = root.WithDevice("/job:worker/task:0");
  EXPECT_EQ(v.Read(worker).node()->requested_device(), "/job:ps/task:0");
  EXPECT_EQ(v.AssignAdd(worker, 1).node()->requested_device(), "/job:ps/task:0");
  EXPECT_EQ(ops::Neg(worker, v).node()->requested_device(), "/job:worker/task:0");
}

TEST(UninitializedVariables, AreThoseWithoutAValue) {
  const Scope s = Scope::NewRoot();
  const Var a(s, "a", 1.0), b(s, "b", 2.0), c(s.SubScope("layer"), "c", 3.0);
  const Output missing = UninitializedVariables(s);
  const Operation init = GlobalVariablesInitializer(s);
  ClientSession session = ClientSession::Create(s).value();
  const auto names = [&] {
    const Tensors result = session.Run({missing}).value();
    const auto flat = result[0].flat<std::string>();
    return std::vector<std::string>(flat.begin(), flat.end());
  };
  EXPECT_THAT(names(), ElementsAre("a", "b", "layer/c"));
  ASSERT_TRUE(session.Run(b.initializer()).ok());
  EXPECT_THAT(names(), ElementsAre("a", "layer/c"));
  ASSERT_TRUE(session.Run(init).ok());
  EXPECT_THAT(names(), ElementsAre());
  const Scope empty = Scope::NewRoot();
  EXPECT_EQ(RunOnce(empty, {UninitializedVariables(empty)})[0].num_elements(), 0);
}

}  // namespace
}  // namespace millrace
