#include "millrace/graph/gradient.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class GradientTest : public ::testing::Test {
 protected:
  Endpoint Source(const char* name, PartialShape shape = PartialShape({2}), DType dtype = DType::kFloat) {
    return b_.Op("TestSource", std::initializer_list<Endpoint>{}, {{"T", dtype}, {"shape", shape}}, name);
  }
  std::vector<Grad> Gradients(std::vector<Endpoint> ys, std::vector<Endpoint> xs, GradientOptions options = {}) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    auto result = AddGradients(&graph_, ys, xs, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : std::vector<Grad>(xs.size());
  }
  // "AddN(OnesLike, OnesLike)": the expression behind a tensor, by op; sources by name.
  static std::string Text(Endpoint e) {
    if (!e) return "none";
    if (e.node->is_type("TestSource")) return e.node->name();
    std::string text = e.node->type();
    if (e.index > 0) absl::StrAppend(&text, ":", e.index);
    if (e.node->num_inputs() == 0) return text;
    text += "(";
    for (int i = 0; i < e.node->num_inputs(); ++i) absl::StrAppend(&text, i > 0 ? ", " : "", Text(e.node->input(i)));
    return text + ")";
  }
  static std::string Text(const Grad& g) {
    return g.IsSlices() ? absl::StrCat("slices(", Text(g.values), ", ", Text(g.indices), ")") : Text(g.dense);
  }

  Graph graph_;
  GraphBuilder b_{&graph_};
};

TEST_F(GradientTest, PathsAreSummed) {
  Endpoint x = Source("x");
  Endpoint y = b_.Op("TestAdd", {x, b_.Op("TestPass", {x})});
  EXPECT_EQ(Text(Gradients({y}, {x})[0]), "AddN(OnesLike(TestAdd(x, TestPass(x))), OnesLike(TestAdd(x, TestPass(x))))");
}

TEST_F(GradientTest, WhatDoesNotInfluenceHasNoGradient) {
  Endpoint x = Source("x"), z = Source("z"), i = Source("i", {2}, DType::kInt32);
  Endpoint y = b_.Op("TestPass", {x});
  std::vector<Grad> g = Gradients({y}, {z, i, b_.Op("TestPass", {y})});
  for (const Grad& grad : g) EXPECT_TRUE(grad.IsNone());
}

TEST_F(GradientTest, IntegersAndStopsEndIt) {
  Endpoint x = Source("x"), i = Source("i", {2}, DType::kInt32);
  EXPECT_TRUE(Gradients({b_.Op("TestPass", {b_.Op("TestStop", {x})})}, {x})[0].IsNone());
  EXPECT_TRUE(Gradients({b_.Op("TestPass", {i})}, {i})[0].IsNone());
}

TEST_F(GradientTest, YItselfAndItsWeights) {
  Endpoint x = Source("x"), w = Source("w");
  EXPECT_EQ(Text(Gradients({x}, {x})[0]), "OnesLike(x)");
  Endpoint y = b_.Op("TestPass", {x});
  EXPECT_EQ(Text(Gradients({y}, {x, y}, {.grad_ys = {w}})[0]), "w");
  EXPECT_EQ(Text(Gradients({y, y}, {x}, {.grad_ys = {w, w}})[0]), "AddN(w, w)");
  Endpoint i = Source("i", {2}, DType::kInt32);
  EXPECT_FALSE(AddGradients(&graph_, {y}, {x}, {.grad_ys = {i}}).ok());
  EXPECT_FALSE(AddGradients(&graph_, {y}, {x}, {.grad_ys = {w, w}}).ok());
  EXPECT_FALSE(AddGradients(&graph_, {Endpoint{}}, {x}).ok());
}

TEST_F(GradientTest, AnXOnTheWayGetsItsOwnAndPassesOn) {
  Endpoint x = Source("x"), w = Source("w");
  Endpoint mid = b_.Op("TestPass", {x});
  Endpoint y = b_.Op("TestPass", {mid});
  std::vector<Grad> g = Gradients({y}, {x, mid}, {.grad_ys = {w}});
  EXPECT_EQ(Text(g[0]), "w");
  EXPECT_EQ(Text(g[1]), "w");
}

TEST_F(GradientTest, StoppedTensorsCountAsConstants) {
  // y = a + b with b = pass(a): total derivative 2, partial ones 1 and 1.
  Endpoint a = Source("a"), w = Source("w");
  Endpoint b = b_.Op("TestPass", {a});
  Endpoint y = b_.Op("TestAdd", {a, b});
  EXPECT_EQ(Text(Gradients({y}, {a}, {.grad_ys = {w}})[0]), "AddN(w, w)");
  std::vector<Grad> partial = Gradients({y}, {a, b}, {.grad_ys = {w}, .stop_gradients = {a, b}});
  EXPECT_EQ(Text(partial[0]), "w");
  EXPECT_EQ(Text(partial[1]), "w");
  EXPECT_EQ(Text(Gradients({y}, {a}, {.grad_ys = {w}, .stop_gradients = {b}})[0]), "w");
}

TEST_F(GradientTest, SlicesAreJoinedAndMixedOnesMadeDense) {
  Endpoint x = Source("x", {3, 2}), w = Source("w", {2, 2});
  Endpoint rows = b_.Op("TestRows", {x});
  EXPECT_EQ(Text(Gradients({rows}, {x}, {.grad_ys = {w}})[0]), "slices(w, Const)");
  Endpoint rows2 = b_.Op("TestRows", {x});
  EXPECT_EQ(Text(Gradients({rows, rows2}, {x}, {.grad_ys = {w, w}})[0]),
            "slices(ConcatV2(w, w, Const), ConcatV2(Const, Const, Const))");
  Endpoint dense = b_.Op("TestPass", {x});
  std::string mixed = Text(Gradients({rows, dense}, {x}, {.grad_ys = {w, x}})[0]);
  EXPECT_THAT(mixed, HasSubstr("UnsortedSegmentSum(w, Const, StridedSlice(Shape(x)"));
  EXPECT_THAT(mixed, HasSubstr("AddN("));
}

TEST_F(GradientTest, AnOpWithoutGradientIsNamed) {
  Endpoint x = Source("x");
  Endpoint y = b_.Op("TestNoGradient", {x}, {}, "culprit");
  Status status = AddGradients(&graph_, {y}, {x}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node culprit}} (op TestNoGradient)"));
  // Off the way it does not matter.
  EXPECT_TRUE(AddGradients(&graph_, {b_.Op("TestPass", {x})}, {x}).ok());
}

TEST_F(GradientTest, BroadcastGradientsNeedTheStepOnlyWhereShapesAreOpen) {
  Endpoint w = Source("w", PartialShape({PartialShape::kUnknown, 10}));
  struct Case {
    PartialShape a, b;
    std::string grad_a, grad_b;
  };
  const int64_t u = PartialShape::kUnknown;
  const Case cases[] = {
      {{4, 10}, {4, 10}, "w", "w"},
      {{u, 10}, {10}, "w", "Sum(w, Const)"},
      {{u, 10}, PartialShape::Scalar(), "w", "Sum(w, Const)"},
      {{4, 10}, {1, 10}, "w", "Reshape(Sum(w, Const), Const)"},
      {{4, 10}, {u, 10}, "w", "Reshape(Sum(w, BroadcastGradientArgs:1(Shape(a), Shape(b))), Shape(b))"},
  };
  for (const Case& c : cases) {
    Graph graph;
    GraphBuilder builder(&graph);
    const auto source = [&](const char* name, PartialShape shape) {
      return builder.Op("TestSource", std::initializer_list<Endpoint>{}, {{"T", DType::kFloat}, {"shape", shape}},
                        name);
    };
    Endpoint a = source("a", c.a), b = source("b", c.b), weight = source("w", w.shape());
    Endpoint y = builder.Op("TestAdd", {a, b});
    ASSERT_TRUE(builder.ok()) << builder.status();
    auto g = AddGradients(&graph, {y}, {a, b}, {.grad_ys = {weight}});
    ASSERT_TRUE(g.ok()) << g.status();
    EXPECT_EQ(Text((*g)[0]), c.grad_a) << c.a.ToString() << c.b.ToString();
    EXPECT_EQ(Text((*g)[1]), c.grad_b) << c.a.ToString() << c.b.ToString();
  }
}

TEST_F(GradientTest, AConditionalSendsTheGradientDownTheBranchTaken) {
  Endpoint x = Source("x"), w = Source("w"), p = Source("p", PartialShape::Scalar(), DType::kBool);
  Node* sw = b_.AddNode("Switch", {x, p});
  Endpoint taken = b_.Op("TestPass", {sw->output(1)});
  Endpoint y = b_.Op("Merge", {b_.Op("TestStop", {sw->output(0)}), taken});
  std::string text = Text(Gradients({y}, {x}, {.grad_ys = {w}})[0]);
  EXPECT_EQ(text, "Merge(ZerosLike(Switch(x, p)), Switch:1(w, p))");
}

TEST_F(GradientTest, NestedConditionalsFindTheirOwnPredicates) {
  Endpoint x = Source("x"), w = Source("w");
  Endpoint p = Source("p", PartialShape::Scalar(), DType::kBool), q = Source("q", PartialShape::Scalar(), DType::kBool);
  Node* outer = b_.AddNode("Switch", {x, p});
  Node* q_in = b_.AddNode("Switch", {q, p});
  Node* inner = b_.AddNode("Switch", {outer->output(1), q_in->output(1)});
  Endpoint in = b_.Op("Merge", {b_.Op("TestPass", {inner->output(0)}), inner->output(1)});
  Endpoint y = b_.Op("Merge", {outer->output(0), in});
  std::string text = Text(Gradients({y}, {x}, {.grad_ys = {w}})[0]);
  EXPECT_EQ(text,
            "Merge(Switch(w, p), Merge(Switch(Switch:1(w, p), Switch:1(q, p)), "
            "Switch:1(Switch:1(w, p), Switch:1(q, p))))");
}

TEST_F(GradientTest, ALoopThatNoWhileMakesIsRefusedByName) {
  Endpoint x = Source("x");
  Endpoint enter = b_.Op("Enter", {x}, {{"frame_name", "f"}});
  Endpoint y = b_.Op("Exit", {enter}, {}, "out");
  Status status = AddGradients(&graph_, {y}, {x}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node out}}"));
}

TEST_F(GradientTest, ALongChainNeedsNoDeepStack) {
  Endpoint x = Source("x"), w = Source("w");
  Endpoint y = x;
  for (int i = 0; i < 20000; ++i) y = b_.Op("TestPass", {y});
  EXPECT_EQ(Text(Gradients({y}, {x}, {.grad_ys = {w}})[0]), "w");
}

}  // namespace
}  // namespace millrace
