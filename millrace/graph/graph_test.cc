#include "millrace/graph/graph.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GraphTest : public ::testing::Test {
 protected:
  Endpoint Source(DType dtype, const char* name = "source") {
    return b_.Op("TestSource", std::initializer_list<Endpoint>{}, {{"T", dtype}}, name);
  }
  StatusOr<Node*> Add(NodeSpec spec) { return graph_.AddNode(std::move(spec)); }

  Graph graph_;
  GraphBuilder b_{&graph_};
};

TEST_F(GraphTest, TypesFollowFromInputs) {
  Endpoint a = Source(DType::kFloat, "a"), b = Source(DType::kInt32, "b");
  Node* add = *Add({.name = "add", .op = "TestAdd", .inputs = {a, a}});
  EXPECT_EQ(add->output_type(0), DType::kFloat);
  Node* many = *Add({.name = "many", .op = "TestMany", .inputs = {b, b, b}});
  EXPECT_EQ(*many->Attr<int64_t>("N"), 3);
  EXPECT_EQ(many->output_type(0), DType::kInt32);
  Node* tuple = *Add({.name = "tuple", .op = "TestTuple", .inputs = {a, b}});
  EXPECT_THAT(*tuple->Attr<std::vector<DType>>("Tin"), ElementsAre(DType::kFloat, DType::kInt32));
  Node* stitch = *Add({.name = "stitch", .op = "TestStitch", .inputs = {b, b, a, a}});
  EXPECT_EQ(*stitch->Attr<int64_t>("N"), 2);
  EXPECT_EQ(stitch->input_type(3), DType::kFloat);
}

TEST_F(GraphTest, AmbiguousListsNeedAnAttr) {
  Endpoint a = Source(DType::kFloat);
  Status status = Add({.name = "two", .op = "TestTwoLists", .inputs = {a, a}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("several ways"));
  NodeSpec spec{.name = "two", .op = "TestTwoLists", .inputs = {a, a}};
  spec.attrs["Ta"] = AttrInit(std::vector<DType>{DType::kFloat}).value();
  Node* two = *Add(std::move(spec));
  EXPECT_THAT(*two->Attr<std::vector<DType>>("Tb"), ElementsAre(DType::kFloat));
}

TEST_F(GraphTest, DefaultsAreSeenThroughTheNode) {
  Node* node = *Add({.name = "modes", .op = "TestModes"});
  EXPECT_EQ(*node->Attr<std::string>("mode"), "LOW");
  EXPECT_EQ(*node->Attr<int64_t>("k"), 3);
  EXPECT_EQ(*node->Attr<DType>("half"), DType::kHalf);
  EXPECT_EQ(node->AttrOr<float>("scale", 0), 0.5f);
  EXPECT_EQ(node->Attr<int64_t>("nope").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(node->Attr<bool>("k").status().message()), HasSubstr("{{node modes}}"));
}

TEST_F(GraphTest, MistakesNameNodeAndOp) {
  Endpoint f = Source(DType::kFloat, "f"), i = Source(DType::kInt32, "i");
  struct Case {
    NodeSpec spec;
    absl::StatusCode code;
    const char* text;
  };
  NodeSpec bad_mode{.name = "n", .op = "TestModes"};
  bad_mode.attrs["mode"].set_s("MIDDLE");
  NodeSpec bad_min{.name = "n", .op = "TestModes"};
  bad_min.attrs["k"].set_i(1);
  NodeSpec unknown_attr{.name = "n", .op = "TestModes"};
  unknown_attr.attrs["colour"].set_i(1);
  NodeSpec huge{.name = "n", .op = "TestSplit", .inputs = {f}};
  huge.attrs["N"].set_i(int64_t{1} << 50);
  const Case cases[] = {
      {{.name = "n", .op = "NoSuchOp"}, absl::StatusCode::kNotFound, "NoSuchOp"},
      {{.name = "n", .op = "TestSource"}, absl::StatusCode::kNotFound, "'T'"},
      {{.name = "n", .op = "TestAdd", .inputs = {f, i}}, absl::StatusCode::kInvalidArgument, "'b' takes float but i:0"},
      {{.name = "n", .op = "TestAdd", .inputs = {f}}, absl::StatusCode::kInvalidArgument, "not enough"},
      {{.name = "n", .op = "TestAdd", .inputs = {f, f, f}}, absl::StatusCode::kInvalidArgument, "takes 2 inputs"},
      {{.name = "n", .op = "TestAdd", .inputs = {f, {}}}, absl::StatusCode::kInvalidArgument, "missing"},
      {{.name = "n", .op = "TestPass", .inputs = {{f.node, 4}}}, absl::StatusCode::kInvalidArgument, "no output 4"},
      {{.name = "f", .op = "TestModes"}, absl::StatusCode::kInvalidArgument, "already"},
      {{.name = "a b", .op = "TestModes"}, absl::StatusCode::kInvalidArgument, "not valid"},
      {bad_mode, absl::StatusCode::kInvalidArgument, "MIDDLE"},
      {bad_min, absl::StatusCode::kInvalidArgument, "minimum 2"},
      {unknown_attr, absl::StatusCode::kInvalidArgument, "colour"},
      {huge, absl::StatusCode::kInvalidArgument, "more than there are or may be"},
  };
  const int before = graph_.num_nodes();
  for (const Case& c : cases) {
    Status status = Add(c.spec).status();
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.spec.name));
  }
  EXPECT_EQ(graph_.num_nodes(), before);
}

TEST_F(GraphTest, ReferencesFeedValuesButNotTheReverse) {
  Endpoint value = Source(DType::kFloat);
  Endpoint ref =
      b_.Op("TestVariable", std::initializer_list<Endpoint>{}, {{"T", DType::kFloat}, {"shape", Shape({2})}}, "var");
  EXPECT_EQ(ref.dtype(), RefType(DType::kFloat));
  EXPECT_TRUE(Add({.name = "assign", .op = "TestAssign", .inputs = {ref, value}}).ok());
  EXPECT_TRUE(Add({.name = "assign2", .op = "TestAssign", .inputs = {ref, ref}}).ok());
  Node* sum = *Add({.name = "sum", .op = "TestAdd", .inputs = {ref, value}});
  EXPECT_EQ(sum->output_type(0), DType::kFloat);
  EXPECT_FALSE(Add({.name = "bad", .op = "TestAssign", .inputs = {value, value}}).ok());
}

TEST_F(GraphTest, EndpointsAreFoundByName) {
  Source(DType::kFloat, "x");
  EXPECT_EQ(graph_.FindEndpoint("x")->name(), "x:0");
  EXPECT_EQ(graph_.FindEndpoint("x:0")->name(), "x:0");
  EXPECT_EQ(graph_.FindEndpoint("^x")->index, -1);
  EXPECT_EQ(graph_.FindEndpoint("y:0").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(graph_.FindEndpoint("x:1").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(graph_.FindEndpoint("x:abc").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(GraphTest, OrderPutsInputsFirstAndFindsCycles) {
  Endpoint x = Source(DType::kFloat, "x");
  Node* a = b_.AddNode("TestPass", {x}, {}, "a");
  Node* c = b_.AddNode("TestPass", {x}, {}, "c");
  graph_.SetInput(a, 0, c->output(0));
  auto order = *TopologicalOrder(graph_);
  EXPECT_THAT(order, ElementsAre(x.node, c, a));
  graph_.AddControlInput(c, a);
  Status status = TopologicalOrder(graph_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::AnyOf(HasSubstr("{{node a}}"), HasSubstr("{{node c}}")));
}

TEST_F(GraphTest, ALoopIsNoCycle) {
  Endpoint x = Source(DType::kFloat, "x");
  Endpoint enter = b_.Op("Enter", {x}, {{"frame_name", "f"}});
  Node* merge = b_.AddNode("Merge", {enter});
  Endpoint next = b_.Op("NextIteration", {merge->output(0)});
  ASSERT_TRUE(b_.ok()) << b_.status();
  ASSERT_TRUE(graph_.AddInput(merge, next).ok());
  EXPECT_EQ(*merge->Attr<int64_t>("N"), 2);
  EXPECT_EQ(TopologicalOrder(graph_)->size(), 4u);
  EXPECT_FALSE(graph_.AddInput(x.node, next).ok());
}

TEST_F(GraphTest, ALongChainNeedsNoDeepStack) {
  Endpoint e = Source(DType::kFloat);
  for (int i = 0; i < 100000; ++i)
    e = Endpoint{*Add({.name = absl::StrCat("n", i), .op = "TestPass", .inputs = {e}}), 0};
  // The reverse of the order in which they were added cannot be given by ids alone.
  graph_.AddControlInput(graph_.FindNode("n5"), graph_.FindNode("n4"));
  EXPECT_EQ(TopologicalOrder(graph_)->size(), 100001u);
}

TEST_F(GraphTest, ClonesShareNothingThatChanges) {
  Endpoint x = Source(DType::kFloat, "x");
  Endpoint y = b_.Op("TestPass", {x}, {}, "y");
  std::unique_ptr<Graph> copy = graph_.Clone();
  Node* twin = copy->FindNode("y");
  ASSERT_NE(twin, y.node);
  EXPECT_EQ(twin->id(), y.node->id());
  EXPECT_EQ(twin->input(0).node, copy->FindNode("x"));
  copy->SetAttr(twin, "_note", AttrInit("copy").value());
  EXPECT_EQ(y.node->FindAttr("_note"), nullptr);
  EXPECT_EQ(*twin->Attr<std::string>("_note"), "copy");
  graph_.RemoveNodes([&](const Node* n) { return n == y.node; });
  EXPECT_EQ(graph_.FindNode("y"), nullptr);
  EXPECT_EQ(copy->num_nodes(), 2);
}

TEST_F(GraphTest, APartialCloneDetachesWhatFeedsIt) {
  Endpoint x = Source(DType::kFloat, "x");
  Endpoint y = b_.Op("TestPass", {x}, {}, "y");
  b_.control_inputs = {y.node};
  Endpoint z = b_.Op("TestPass", {y}, {}, "z");
  std::unique_ptr<Graph> copy = graph_.Clone([&](const Node* n) { return n == z.node; });
  EXPECT_EQ(GraphToString(*copy), "z = TestPass(y)\n");
  EXPECT_TRUE(copy->FindNodeById(y.node->id())->is_detached());
  EXPECT_EQ(TopologicalOrder(*copy)->size(), 1u);
  EXPECT_EQ(GraphToString(*copy->Clone()), "z = TestPass(y)\n");
}

TEST_F(GraphTest, AReplacedNodeKeepsItsNameAndUsers) {
  Endpoint x = Source(DType::kFloat, "x");
  Endpoint y = b_.Op("TestPass", {x}, {}, "y");
  b_.Op("TestPass", {y}, {}, "z");
  ASSERT_TRUE(graph_.ReplaceNode(y.node, {.name = "", .op = "TestAdd", .inputs = {x, x}}).ok());
  EXPECT_EQ(GraphToString(graph_), "x = TestSource()\ny = TestAdd(x, x)\nz = TestPass(y)\n");
  Endpoint i = Source(DType::kInt32, "i");
  EXPECT_FALSE(graph_.ReplaceNode(y.node, {.name = "", .op = "TestAdd", .inputs = {i, i}}).ok());
  EXPECT_EQ(y.node->type(), "TestAdd");
}

TEST_F(GraphTest, NamesAreMadeUnique) {
  Source(DType::kFloat, "x");
  Source(DType::kFloat, "x_1");
  EXPECT_EQ(graph_.UniqueName("x"), "x_2");
  EXPECT_EQ(graph_.UniqueName("fresh"), "fresh");
}

TEST(NodeNameTest, FollowsTensorFlow) {
  for (const char* good : {"a", "A/b_c-d.e", "1x", ".x", "a\\b", "while/x>y"})
    EXPECT_TRUE(IsValidNodeName(good)) << good;
  for (const char* bad : {"", "_a", "/a", "a b", "a:0", "^a", "\xc3\xa9"}) EXPECT_FALSE(IsValidNodeName(bad)) << bad;
}

}  // namespace
}  // namespace millrace
