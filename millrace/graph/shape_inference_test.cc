#include "millrace/graph/shape_inference.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t U = kUnknownInt;

class ShapeInferenceTest : public ::testing::Test {
 protected:
  Endpoint Source(PartialShape shape, DType dtype = DType::kFloat) {
    return b_.Op("TestSource", std::initializer_list<Endpoint>{}, {{"T", dtype}, {"shape", shape}}, "source");
  }
  // The elements that evaluation finds, or one -99 when it finds not even their number.
  std::vector<int64_t> Evaluate(Endpoint e) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    std::vector<int64_t> values;
    const auto lookup = [&](Endpoint c) -> const Tensor* {
      if (!c.node->is_type("Const")) return nullptr;
      cache_.push_back(std::make_unique<Tensor>(*c.node->Attr<Tensor>("value")));
      return cache_.back().get();
    };
    if (!EvaluateInts(e, lookup, &values)) return {-99};
    return values;
  }
  Endpoint Element(Endpoint shape, int i) {
    return b_.Op("StridedSlice", {shape, b_.Ints({i}), b_.Ints({i + 1}), b_.Ints({1})}, {{"shrink_axis_mask", 1}});
  }

  Graph graph_;
  GraphBuilder b_{&graph_};
  std::vector<std::unique_ptr<Tensor>> cache_;
};

TEST(BroadcastShapesTest, FollowsNumPyWithUnknownDimensions) {
  const auto b = [](PartialShape x, PartialShape y) { return BroadcastShapes(x, y)->ToString(); };
  EXPECT_EQ(b({2, 3}, {3}), "[2,3]");
  EXPECT_EQ(b({2, 1}, {1, 3}), "[2,3]");
  EXPECT_EQ(b({PartialShape::kUnknown, 3}, {3}), "[?,3]");
  EXPECT_EQ(b({PartialShape::kUnknown}, {5}), "[5]");
  EXPECT_EQ(b({PartialShape::kUnknown}, {1}), "[?]");
  EXPECT_EQ(b({0}, {1}), "[0]");
  EXPECT_EQ(b(PartialShape(), {5}), PartialShape().ToString());
  EXPECT_EQ(b(PartialShape::Scalar(), {4}), "[4]");
  EXPECT_EQ(BroadcastShapes(PartialShape{2}, PartialShape{3}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CanonicalAxisTest, CountsFromTheEnd) {
  EXPECT_EQ(*CanonicalAxis(-1, 3), 2);
  EXPECT_EQ(*CanonicalAxis(0, 3), 0);
  EXPECT_FALSE(CanonicalAxis(3, 3).ok());
  EXPECT_FALSE(CanonicalAxis(-4, 3).ok());
  EXPECT_FALSE(CanonicalAxis(0, 0).ok());
}

TEST_F(ShapeInferenceTest, ShapesFlowThroughTheGraph) {
  Endpoint a = Source({PartialShape::kUnknown, 3}), b = Source({3});
  Endpoint sum = b_.Op("TestAdd", {a, b});
  EXPECT_EQ(sum.shape().ToString(), "[?,3]");
  EXPECT_EQ(b_.Op("TestPass", {sum}).shape().ToString(), "[?,3]");
}

TEST_F(ShapeInferenceTest, ABuilderRefusesShapesThatDoNotFit) {
  Endpoint a = Source({2}), b = Source({3});
  const int before = graph_.num_nodes();
  b_.Op("TestAdd", {a, b}, {}, "bad");
  EXPECT_EQ(b_.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(b_.status().message()), HasSubstr("{{node bad}} (op TestAdd)"));
  EXPECT_EQ(graph_.num_nodes(), before);
  // The first error sticks.
  EXPECT_FALSE(b_.Op("TestPass", {a}));
}

TEST_F(ShapeInferenceTest, LenientInferenceGoesOnAfterAMistake) {
  Endpoint a = Source({2}), b = Source({3});
  Node* bad = *graph_.AddNode({.name = "bad", .op = "TestAdd", .inputs = {a, b}});
  Node* after = *graph_.AddNode({.name = "after", .op = "TestAdd", .inputs = {{bad, 0}, a}});
  Node* good = *graph_.AddNode({.name = "good", .op = "TestPass", .inputs = {a}});
  EXPECT_FALSE(InferShapes(&graph_, /*lenient=*/false).ok());
  ASSERT_TRUE(InferShapes(&graph_, /*lenient=*/true).ok());
  EXPECT_FALSE(bad->output_shape(0).known_rank());
  EXPECT_FALSE(after->output_shape(0).known_rank());
  EXPECT_EQ(good->output_shape(0).ToString(), "[2]");
}

TEST_F(ShapeInferenceTest, IntegersAreEvaluatedAsFarAsKnown) {
  Endpoint shape = b_.Shape(Source({PartialShape::kUnknown, 28, 3}));
  EXPECT_THAT(Evaluate(shape), ElementsAre(U, 28, 3));
  EXPECT_THAT(Evaluate(Element(shape, 1)), ElementsAre(28));
  EXPECT_THAT(Evaluate(Element(shape, -1)), ElementsAre(3));
  Endpoint ten = b_.Scalar<int32_t>(10);
  EXPECT_THAT(Evaluate(b_.Op("Pack", {Element(shape, 0), ten})), ElementsAre(U, 10));
  Endpoint zero = b_.Scalar<int32_t>(0);
  EXPECT_THAT(Evaluate(b_.Op("ConcatV2", {b_.Ints({7}), shape, zero})), ElementsAre(7, U, 28, 3));
  EXPECT_THAT(Evaluate(b_.Op("Slice", {shape, b_.Ints({1}), b_.Ints({-1})})), ElementsAre(28, 3));
  EXPECT_THAT(Evaluate(b_.Op("StridedSlice", {shape, b_.Ints({0}), b_.Ints({0}), b_.Ints({-1})},
                             {{"begin_mask", 1}, {"end_mask", 1}})),
              ElementsAre(3, 28, U));
  EXPECT_THAT(Evaluate(b_.Cast(shape, DType::kInt64)), ElementsAre(U, 28, 3));
  EXPECT_THAT(Evaluate(b_.Rank(Source({1, 2, 3}))), ElementsAre(3));
}

TEST_F(ShapeInferenceTest, WhatIsNotConstantIsNotMadeUp) {
  Endpoint fed = Source({2}, DType::kInt32);
  EXPECT_THAT(Evaluate(fed), ElementsAre(U, U));
  EXPECT_THAT(Evaluate(Source(PartialShape(), DType::kInt32)), ElementsAre(-99));
}

Status TakesInts(ShapeContext& c) {
  std::vector<int64_t> values;
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(0));
  // The output's rank tells whether all integers were known.
  c.set_output(0, c.ConstantInts(0, &values) ? shape : PartialShape({-1, -1, -1, -1}));
  c.set_output(1, shape);
  return absl::OkStatus();
}
MILLRACE_OP(TestTakesInts).Input("x: T").Output("all: T").Output("shape: T").Attr("T: {int32, int64}").Shape(TakesInts);

TEST_F(ShapeInferenceTest, UnknownElementsCountForShapesOnly) {
  // An unknown size must not look like the -1 that means "to the end" or "last axis".
  Endpoint partial = b_.Shape(Source({PartialShape::kUnknown, 3}));
  Node* node = b_.AddNode("TestTakesInts", {partial});
  ASSERT_TRUE(b_.ok()) << b_.status();
  EXPECT_EQ(node->output_shape(0).rank(), 4);
  EXPECT_EQ(node->output_shape(1).ToString(), "[?,3]");
  Node* known = b_.AddNode("TestTakesInts", {b_.Ints({5, -1})});
  EXPECT_EQ(known->output_shape(0).ToString(), "[5,?]");
  Node* length = b_.AddNode("TestTakesInts", {Source({2}, DType::kInt32)});
  EXPECT_EQ(length->output_shape(1).ToString(), "[?,?]");
  b_.AddNode("TestTakesInts", {b_.Ints({-2})});
  EXPECT_FALSE(b_.ok());
}

Status TakesHandle(ShapeContext& c) {
  c.set_output(0, c.HandleShape(0));
  return absl::OkStatus();
}
MILLRACE_OP(TestTakesRef).Input("ref: Ref(T)").Output("y: T").Attr("T: type").Shape(TakesHandle);

TEST_F(ShapeInferenceTest, AReferenceKnowsItsVariablesShape) {
  Endpoint var =
      b_.Op("TestVariable", std::initializer_list<Endpoint>{}, {{"T", DType::kFloat}, {"shape", Shape({2, 5})}});
  Endpoint assigned = b_.Op("TestAssign", {var, Source({2, 5})});
  EXPECT_EQ(b_.Op("TestTakesRef", {assigned}).shape().ToString(), "[2,5]");
}

TEST_F(ShapeInferenceTest, ADeepOrWideExpressionEndsSoon) {
  // Doubling at every level would take 2^60 steps without a limit.
  Endpoint e = Element(b_.Shape(Source({3})), 0);
  for (int i = 0; i < 60; ++i) e = b_.Op("AddV2", {e, e});
  EXPECT_THAT(Evaluate(e), ElementsAre(U));
  Endpoint v = b_.Shape(Source({3, 4}));
  Endpoint zero = b_.Scalar<int32_t>(0);
  for (int i = 0; i < 40; ++i) {
    StatusOr<Node*> node = graph_.AddNode({.name = absl::StrCat("c", i), .op = "ConcatV2", .inputs = {v, v, zero}});
    v = (*node)->output(0);
  }
  EXPECT_THAT(Evaluate(v), ElementsAre(-99));
}

}  // namespace
}  // namespace millrace
