#include "millrace/api/scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/millrace.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> ControlInputs(const Operation& op) {
  std::vector<std::string> names;
  for (const Node* node : op.node()->control_inputs()) names.push_back(node->name());
  return names;
}

TEST(Scope, NamesNodesAfterOpAndScope) {
  const Scope root = Scope::NewRoot();
  const Scope layer = root.SubScope("layer1");
  EXPECT_EQ(ops::Const(root, 1).name(), "Const:0");
  EXPECT_EQ(ops::Const(root, 1).name(), "Const_1:0");
  const Output x = ops::Const(layer.WithOpName("x"), {1.0, 2.0});
  EXPECT_EQ(x.name(), "layer1/x:0");
  EXPECT_EQ(ops::Identity(layer.WithOpName("x"), x).name(), "layer1/x_1:0");
  EXPECT_EQ(ops::Identity(layer.SubScope("inner"), x).name(), "layer1/inner/Identity:0");
  EXPECT_EQ(root.SubScope("layer1").prefix(), "layer1_1");
  EXPECT_TRUE(root.ok()) << root.status();
}

TEST(Scope, NodesAndScopesDoNotShareNames) {
  const Scope root = Scope::NewRoot();
  ops::Const(root.WithOpName("a"), 1);
  EXPECT_EQ(root.SubScope("a").prefix(), "a_1");
  root.SubScope("b");
  EXPECT_EQ(ops::Const(root.WithOpName("b"), 1).name(), "b_1:0");
}

TEST(Scope, ConstantsInPlaceAreNamedAfterTheirArgument) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Placeholder(root.WithOpName("x"), DType::kDouble);
  const Output y = ops::AddV2(root.WithOpName("sum"), x, 2);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(y.node()->input(1).name(), "sum/y:0");
  EXPECT_EQ(y.node()->input(1).dtype(), DType::kDouble);
}

TEST(Scope, ControlDependenciesOrderNodesButNotConstants) {
  const Scope root = Scope::NewRoot();
  const Operation first = ops::NoOp(root.WithOpName("first"));
  const Output x = ops::Const(root.WithOpName("x"), 1.0);
  const Scope after = root.WithControlDependencies({first, x});
  const Output sum = ops::AddV2(after.WithOpName("sum"), x, 1);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_THAT(ControlInputs(sum), ElementsAre("first", "x"));
  EXPECT_THAT(ControlInputs(Operation(root, sum.node()->input(1).node)), ElementsAre());
  EXPECT_THAT(ControlInputs(ops::NoOp(after.WithoutControlDependencies())), ElementsAre());
}

TEST(Scope, DevicesMergeInnerOverOuter) {
  const Scope root = Scope::NewRoot();
  const Scope ps = root.WithDevice("/job:ps/task:1");
  const Output x = ops::Const(ps.WithDevice("/device:CPU:0"), 1);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_THAT(x.node()->requested_device(), HasSubstr("/job:ps"));
  EXPECT_THAT(x.node()->requested_device(), HasSubstr("/task:1"));
  EXPECT_THAT(x.node()->requested_device(), HasSubstr("CPU:0"));
}

TEST(Scope, ColocationIsWrittenAsClass) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Const(root.WithOpName("x"), 1);
  const Output y = ops::Identity(root.ColocateWith(x), x);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_THAT(y.node()->AttrOr<std::vector<std::string>>("_class", {}), ElementsAre("loc:@x"));
}

TEST(Scope, FirstErrorSticksAndNamesNodeAndOp) {
  const Scope root = Scope::NewRoot();
  const Scope layer = root.SubScope("layer");
  const Output a = ops::Const(root, Tensor(DType::kFloat, Shape({2, 3})));
  const Output product = ops::MatMul(layer.WithOpName("product"), a, a);
  EXPECT_TRUE(product.empty());
  EXPECT_EQ(root.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("layer/product"));
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("MatMul"));
  const Status first = root.status();
  const int nodes = root.graph()->num_nodes();
  EXPECT_TRUE((ops::Identity(root, product) + 1).empty());
  EXPECT_TRUE(layers::Dense(root, product, 10).empty());
  EXPECT_EQ(root.status(), first);
  EXPECT_EQ(root.graph()->num_nodes(), nodes);
  EXPECT_EQ(root.ToGraphDef().status(), first);
}

TEST(Scope, WrongTypesAreFoundAtTheCall) {
  const Scope root = Scope::NewRoot();
  const Output a = ops::Const(root, 1.0), b = ops::Const(root, 1);
  EXPECT_TRUE(ops::AddV2(root.WithOpName("sum"), a, b).empty());
  EXPECT_EQ(root.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("sum"));
}

TEST(Scope, MistakesInArgumentsAreTold) {
  const auto message = [](auto build) {
    const Scope root = Scope::NewRoot();
    build(root);
    EXPECT_FALSE(root.ok());
    return std::string(root.status().message());
  };
  EXPECT_THAT(message([](const Scope& s) { ops::Identity(s.WithOpName("id"), Output()); }), HasSubstr("id"));
  EXPECT_THAT(message([](const Scope& s) {
                const Output other = ops::Const(Scope::NewRoot(), 1);
                ops::Identity(s, other);
              }),
              HasSubstr("another graph"));
  EXPECT_THAT(message([](const Scope& s) { ops::Const(s, {{1, 2}, {3}}); }), HasSubstr("different shapes"));
  EXPECT_THAT(message([](const Scope& s) { ops::Const(s, 1.5, DType::kInt32); }), HasSubstr("1.5"));
  EXPECT_THAT(message([](const Scope& s) { ops::Const(s, 300, DType::kUInt8); }), HasSubstr("300"));
  EXPECT_THAT(message([](const Scope& s) { s.SubScope("a b"); }), HasSubstr("a b"));
  EXPECT_THAT(message([](const Scope& s) { ops::NoOp(s.WithOpName("^x")); }), HasSubstr("^x"));
  EXPECT_THAT(message([](const Scope& s) { s.WithDevice("/jib:ps"); }), HasSubstr("/jib:ps"));
  EXPECT_THAT(message([](const Scope& s) { s.WithControlDependencies({Operation()}); }), HasSubstr("empty"));
  EXPECT_THAT(message([](const Scope& s) { AddOp(s, "NoSuchOp", {}); }), HasSubstr("NoSuchOp"));
  EXPECT_THAT(message([](const Scope& s) { AddOp(s, "Identity", {1, 2}); }), HasSubstr("Identity"));
}

TEST(Scope, GraphDefHasWhatWasBuilt) {
  const Scope root = Scope::NewRoot();
  ops::Identity(root.WithOpName("y"), ops::Const(root.WithOpName("x"), 1));
  StatusOr<pb::GraphDef> def = root.ToGraphDef();
  ASSERT_TRUE(def.ok()) << def.status();
  ASSERT_EQ(def->node_size(), 2);
  EXPECT_EQ(def->node(1).name(), "y");
  EXPECT_THAT(def->node(1).input(), ElementsAre("x"));
}

TEST(Scope, SeedsFollowTensorFlowsRule) {
  const Scope root = Scope::NewRoot();
  EXPECT_EQ(root.OpSeeds(), std::make_pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(root.OpSeeds(7), std::make_pair(int64_t{87654321}, int64_t{7}));
  root.SetRandomSeed(0);
  EXPECT_EQ(root.OpSeeds(0), std::make_pair(int64_t{0}, int64_t{INT32_MAX}));
  root.SetRandomSeed(5);
  EXPECT_EQ(root.OpSeeds(7), std::make_pair(int64_t{5}, int64_t{7}));
  const Output a = ops::RandomUniform(root, {2}, DType::kFloat);
  const Output b = ops::RandomUniform(root, {2}, DType::kFloat);
  const Output c = ops::RandomUniform(root, {2}, DType::kFloat, {.seed = 3, .seed2 = 4});
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(a.node()->AttrOr<int64_t>("seed", -1), 5);
  EXPECT_NE(a.node()->AttrOr<int64_t>("seed2", -1), b.node()->AttrOr<int64_t>("seed2", -1));
  EXPECT_EQ(c.node()->AttrOr<int64_t>("seed", -1), 3);
  EXPECT_EQ(c.node()->AttrOr<int64_t>("seed2", -1), 4);
}

}  // namespace
}  // namespace millrace
