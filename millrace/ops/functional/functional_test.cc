#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/gradient.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FunctionalTest : public OpSessionTest {
 protected:
  // name(a: T, b: T) = op(a, b), with T an attr of the function.
  pb::AttrValue Define(const std::string& name, const std::string& op) {
    pb::FunctionDef& def = *b_.graph()->mutable_library()->add_function();
    def.mutable_signature()->set_name(name);
    auto* t = def.mutable_signature()->add_attr();
    t->set_name("T");
    t->set_type("type");
    for (const char* arg : {"a", "b"}) {
      auto* in = def.mutable_signature()->add_input_arg();
      in->set_name(arg);
      in->set_type_attr("T");
    }
    auto* out = def.mutable_signature()->add_output_arg();
    out->set_name("r");
    out->set_type_attr("T");
    pb::NodeDef* node = def.add_node_def();
    node->set_name("inner");
    node->set_op(op);
    node->add_input("a");
    node->add_input("b");
    (*node->mutable_attr())["T"].set_placeholder("T");
    (*def.mutable_ret())["r"] = "inner:z:0";
    pb::AttrValue f;
    f.mutable_func()->set_name(name);
    (*f.mutable_func()->mutable_attr())["T"].set_type(pb::DT_FLOAT);
    return f;
  }
  const AttrList Types(const char* name) { return {{name, std::vector<DType>{DType::kFloat}}}; }
  Endpoint Vector(std::vector<float> values) { return b_.Const(Tensor::FromVector(values)); }
};

TEST_F(FunctionalTest, AttrsAreFilledInAndGradientsTaken) {
  const pb::AttrValue f = Define("product", "Mul");
  const Endpoint x = Vector({1, 2}), y = Vector({3, 4});
  const Endpoint z = b_.Op("PartitionedCall", {x, y}, {{"f", f}, {"Tout", std::vector<DType>{DType::kFloat}}});
  const Endpoint g = b_.Op("SymbolicGradient", {x, y, Vector({1, 10})},
                           {{"f", f}, {"Tout", std::vector<DType>{DType::kFloat, DType::kFloat}}});
  ASSERT_TRUE(b_.ok()) << b_.status();
  EXPECT_THAT(Values<float>(z), ElementsAre(3, 8));
  EXPECT_THAT(Values<float>(g), ElementsAre(3, 40));
  EXPECT_THAT(Values<float>(Endpoint{g.node, 1}), ElementsAre(1, 20));
}

TEST_F(FunctionalTest, RemoteCallRunsHereAndNowhereElse) {
  const pb::AttrValue f = Define("sum", "AddV2");
  const AttrList attrs = {{"f", f}, {"Tout", std::vector<DType>{DType::kFloat}}};
  const Endpoint x = Vector({1, 2});
  EXPECT_THAT(Values<float>(b_.Op("RemoteCall", {b_.Const(Tensor::Scalar("/cpu:0")), x, x}, attrs)), ElementsAre(2, 4));
  const auto r = Fetch({b_.Op("RemoteCall", {b_.Const(Tensor::Scalar("/job:other/task:3")), x, x}, attrs)});
  EXPECT_THAT(r.status().ToString(), HasSubstr("/job:other/task:3"));
}

// branch(v) adds 1 to v, returns 5, and declares no control output.
void DefineBranchWithEffect(pb::FunctionDef& def) {
  def.mutable_signature()->set_name("branch");
  auto* in = def.mutable_signature()->add_input_arg();
  in->set_name("v");
  in->set_type(pb::DT_RESOURCE);
  auto* out = def.mutable_signature()->add_output_arg();
  out->set_name("r");
  out->set_type(pb::DT_FLOAT);
  const auto constant = [&](const char* name, float value) {
    pb::NodeDef* node = def.add_node_def();
    node->set_name(name);
    node->set_op("Const");
    (*node->mutable_attr())["dtype"].set_type(pb::DT_FLOAT);
    auto* t = (*node->mutable_attr())["value"].mutable_tensor();
    t->set_dtype(pb::DT_FLOAT);
    t->mutable_tensor_shape();
    t->add_float_val(value);
  };
  constant("one", 1);
  constant("five", 5);
  pb::NodeDef* add = def.add_node_def();
  add->set_name("add");
  add->set_op("AssignAddVariableOp");
  add->add_input("v");
  add->add_input("one:output:0");
  (*add->mutable_attr())["dtype"].set_type(pb::DT_FLOAT);
  (*def.mutable_ret())["r"] = "five:output:0";
}

// In TensorFlow a conditional with this attr is replaced by its branches before the graph is pruned; one without it is
// run by its kernel, which runs every stateful op of the branch.
TEST_F(FunctionalTest, ALoweredConditionalRunsOnlyTheEffectsThatItsBranchesDeclare) {
  DefineBranchWithEffect(*b_.graph()->mutable_library()->add_function());
  pb::AttrValue f;
  f.mutable_func()->set_name("branch");
  const Endpoint v = b_.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape::Scalar()}}, "v");
  Node* const init = b_.AddNode("AssignVariableOp", {v, b_.Scalar<float>(0)}, {{"dtype", DType::kFloat}});
  const Endpoint read = b_.Op("ReadVariableOp", {v}, {{"dtype", DType::kFloat}});
  const auto run = [&](AttrList more) {
    AttrList attrs = {{"then_branch", f}, {"else_branch", f}, {"Tout", std::vector<DType>{DType::kFloat}}};
    for (auto& attr : more) attrs.push_back(attr);
    EXPECT_TRUE(Run(init).ok());
    EXPECT_THAT(Values<float>(b_.Op("If", {b_.Scalar(true), v}, attrs)), ElementsAre(5));
    return Values<float>(read)[0];
  };
  EXPECT_EQ(run({{"_lower_using_switch_merge", true}}), 0);
  EXPECT_EQ(run({{"_lower_using_switch_merge", false}}), 1);
  EXPECT_EQ(run({}), 1);
}

TEST_F(FunctionalTest, AFunctionThatIsMissingIsNamed) {
  pb::AttrValue f;
  f.mutable_func()->set_name("nowhere");
  const auto r =
      Fetch({b_.Op("PartitionedCall", {Vector({1})}, {{"f", f}, {"Tout", std::vector<DType>{DType::kFloat}}})});
  EXPECT_EQ(r.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(r.status().ToString(), HasSubstr("nowhere"));
}

TEST_F(FunctionalTest, ForCountsUpAndDownAndRefusesToRunForever) {
  // (i, x) -> x + cast(i)
  pb::FunctionDef& def = *b_.graph()->mutable_library()->add_function();
  def.mutable_signature()->set_name("body");
  auto* i = def.mutable_signature()->add_input_arg();
  i->set_name("i");
  i->set_type(pb::DT_INT32);
  auto* x = def.mutable_signature()->add_input_arg();
  x->set_name("x");
  x->set_type(pb::DT_INT32);
  auto* out = def.mutable_signature()->add_output_arg();
  out->set_name("r");
  out->set_type(pb::DT_INT32);
  pb::NodeDef* node = def.add_node_def();
  node->set_name("sum");
  node->set_op("AddV2");
  node->add_input("i");
  node->add_input("x");
  (*node->mutable_attr())["T"].set_type(pb::DT_INT32);
  (*def.mutable_ret())["r"] = "sum:z:0";
  pb::AttrValue f;
  f.mutable_func()->set_name("body");
  const auto loop = [&](int32_t from, int32_t to, int32_t by) {
    return b_.Op("For", {b_.Scalar(from), b_.Scalar(to), b_.Scalar(by), b_.Scalar<int32_t>(0)}, {{"body", f}});
  };
  EXPECT_THAT(Values<int32_t>(loop(0, 5, 1)), ElementsAre(10));
  EXPECT_THAT(Values<int32_t>(loop(5, 0, -2)), ElementsAre(9));
  EXPECT_THAT(Values<int32_t>(loop(3, 3, 1)), ElementsAre(0));
  EXPECT_EQ(Fetch({loop(0, 5, 0)}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Fetch({loop(0, 5, -1)}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
