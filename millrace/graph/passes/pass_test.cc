#include "millrace/graph/passes/pass.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/passes/saved_reads.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {
namespace {

// Adds integers; stands in for the kernels that a session would run.
StatusOr<std::vector<Tensor>> EvaluateAdd(const Node& node, absl::Span<const Tensor> inputs) {
  if (!node.is_type("AddV2")) return Unimplemented(node.type());
  return std::vector<Tensor>{Tensor::Scalar<int32_t>(inputs[0].scalar<int32_t>() + inputs[1].scalar<int32_t>())};
}

class PassTest : public ::testing::Test {
 protected:
  PassTest() { context_.evaluate = EvaluateAdd; }
  Endpoint Placeholder(const char* name, PartialShape shape = PartialShape(), DType dtype = DType::kFloat) {
    return b_.Op("Placeholder", std::initializer_list<Endpoint>{}, {{"dtype", dtype}, {"shape", shape}}, name);
  }
  std::string Before() {
    EXPECT_TRUE(b_.ok()) << b_.status();
    return GraphToString(graph_);
  }
  std::string After(Status (*pass)(Graph*, const PassContext&)) {
    Status status = pass(&graph_, context_);
    EXPECT_TRUE(status.ok()) << status;
    return GraphToString(graph_);
  }

  Graph graph_;
  GraphBuilder b_{&graph_};
  PassContext context_;
};

TEST_F(PassTest, PruneKeepsWhatIsNeededAndFeedsCut) {
  Endpoint x = Placeholder("x");
  Endpoint a = b_.Op("Identity", {x}, {}, "a");
  Endpoint c = b_.Op("Identity", {a}, {}, "c");
  b_.Op("Identity", {a}, {}, "unused");
  b_.control_inputs = {b_.AddNode("NoOp", {}, {}, "first")};
  Endpoint y = b_.Op("Identity", {c}, {}, "y");
  EXPECT_EQ(Before(),
            "x = Placeholder()\na = Identity(x)\nc = Identity(a)\nunused = Identity(a)\nfirst = NoOp()\n"
            "y = Identity(c, ^first)\n");
  context_.fetches = {y};
  context_.feeds = {c};
  EXPECT_EQ(After(Prune), "first = NoOp()\ny = Identity(c, ^first)\n");
  EXPECT_TRUE(c.node->is_detached());
}

TEST_F(PassTest, CollectiveOpsAreOrderedByDataAndThenByTheirNumbers) {
  const auto numbered = [&](Endpoint e, int64_t order) {
    graph_.SetAttr(e.node, kCollectiveOrderAttr, AttrInit(order).value());
    return e;
  };
  const Endpoint x = Placeholder("x");
  const Endpoint late = numbered(b_.Op("Identity", {x}, {}, "late"), 3);
  const Endpoint middle = b_.Op("Identity", {x}, {}, "middle");
  // Its input is the one with the highest number, so it comes last.
  numbered(b_.Op("Identity", {b_.Op("Identity", {late}, {}, "between")}, {}, "first"), 1);
  numbered(b_.Op("Identity", {middle}, {}, "second"), 2);
  ASSERT_TRUE(b_.ok()) << b_.status();
  ASSERT_TRUE(OrderCollectives(&graph_).ok());
  EXPECT_EQ(GraphToString(graph_),
            "x = Placeholder()\nlate = Identity(x, ^second)\nmiddle = Identity(x)\nbetween = Identity(late)\n"
            "first = Identity(between, ^late)\nsecond = Identity(middle)\n");
}

TEST_F(PassTest, PruneLetsAFeedStandForHavingRun) {
  Endpoint x = Placeholder("x");
  Endpoint a = b_.Op("Identity", {x}, {}, "a");
  b_.control_inputs = {a.node};
  Node* done = b_.AddNode("NoOp", {}, {}, "done");
  context_.targets = {done};
  context_.feeds = {a};
  EXPECT_EQ(After(Prune), "done = NoOp()\n");
}

TEST_F(PassTest, OnlyWhatIsOrderedAfterAnUpdateReadsTheVariableItself) {
  Endpoint v =
      b_.Op("VariableV2", std::initializer_list<Endpoint>{}, {{"dtype", DType::kFloat}, {"shape", Shape()}}, "v");
  Endpoint read = b_.Op("Identity", {v}, {}, "read");
  Endpoint more = b_.Op("AssignAdd", {v, Placeholder("x")}, {}, "more");
  b_.Op("Neg", {read}, {}, "before");
  b_.control_inputs = {more.node};
  b_.Op("Neg", {read}, {}, "after");
  EXPECT_EQ(Before(),
            "v = VariableV2()\nread = Identity(v)\nx = Placeholder()\nmore = AssignAdd(v, x)\n"
            "before = Neg(read)\nafter = Neg(read, ^more)\n");
  EXPECT_EQ(After([](Graph* graph, const PassContext&) { return ReadAfterUpdates(graph); }),
            "v = VariableV2()\nread = Identity(v)\nx = Placeholder()\nmore = AssignAdd(v, x)\n"
            "before = Neg(read)\nafter = Neg(v, ^more)\n");
}

TEST_F(PassTest, AReferenceIsCarriedIntoALoopToWhatRunsAfterAnUpdate) {
  Endpoint v =
      b_.Op("VariableV2", std::initializer_list<Endpoint>{}, {{"dtype", DType::kFloat}, {"shape", Shape()}}, "v");
  Endpoint read = b_.Op("Identity", {v}, {}, "read");
  Endpoint more = b_.Op("AssignAdd", {v, Placeholder("x")}, {}, "more");
  Endpoint inside = b_.Op("Enter", {read}, {{"frame_name", "f"}, {"is_constant", true}}, "inside");
  Endpoint chosen = b_.Op("Switch", {inside, Placeholder("p", PartialShape::Scalar(), DType::kBool)}, {}, "chosen");
  b_.Op("Neg", {inside}, {}, "before");
  b_.control_inputs = {more.node};
  b_.Op("Neg", {chosen}, {}, "after");
  Before();
  EXPECT_EQ(After([](Graph* graph, const PassContext&) { return ReadAfterUpdates(graph); }),
            "v = VariableV2()\nread = Identity(v)\nx = Placeholder()\nmore = AssignAdd(v, x)\n"
            "inside = Enter(read)\np = Placeholder()\nchosen = Switch(inside, p)\nbefore = Neg(inside)\n"
            "after = Neg(chosen/ref, ^more)\ninside/ref = RefEnter(v)\nchosen/ref = RefSwitch(inside/ref, p)\n");
}

TEST_F(PassTest, FoldingComputesConstantsUnderTheirNames) {
  Endpoint two = b_.Const(Tensor::Scalar<int32_t>(2), "two");
  Endpoint four = b_.Op("AddV2", {two, two}, {}, "four");
  Endpoint six = b_.Op("AddV2", {four, two}, {}, "six");
  Endpoint x = Placeholder("x", PartialShape::Scalar(), DType::kInt32);
  Endpoint y = b_.Op("AddV2", {six, x}, {}, "y");
  EXPECT_EQ(Before(),
            "two = Const()\nfour = AddV2(two, two)\nsix = AddV2(four, two)\nx = Placeholder()\ny = "
            "AddV2(six, x)\n");
  context_.fetches = {y, six};
  EXPECT_EQ(After(FoldConstants),
            "two = Const()\nfour = Const()\nsix = Const()\nx = Placeholder()\ny = AddV2(six, x)\n");
  EXPECT_EQ(six.node->Attr<Tensor>("value")->scalar<int32_t>(), 6);
}

TEST_F(PassTest, FoldingKeepsControlInputsFeedsAndFailures) {
  Endpoint two = b_.Const(Tensor::Scalar<int32_t>(2), "two");
  Node* gate = b_.AddNode("NoOp", {}, {}, "gate");
  b_.control_inputs = {gate};
  Endpoint three = b_.Const(Tensor::Scalar<int32_t>(3), "three");
  b_.control_inputs = {};
  Endpoint five = b_.Op("AddV2", {two, three}, {}, "five");
  Endpoint fed = b_.Op("AddV2", {two, two}, {}, "fed");
  Endpoint failing = b_.Op("Neg", {two}, {}, "failing");
  context_.fetches = {five, failing};
  context_.feeds = {fed};
  EXPECT_EQ(After(FoldConstants),
            "two = Const()\ngate = NoOp()\nthree = Const(^gate)\nfive = Const(^gate)\nfed = "
            "AddV2(two, two)\n"
            "failing = Neg(two)\n");
}

TEST_F(PassTest, FoldingKnowsShapes) {
  Endpoint x = Placeholder("x", PartialShape({2, 3}));
  Endpoint u = Placeholder("u", PartialShape({PartialShape::kUnknown, 3}));
  Endpoint shape = b_.Op("Shape", {x}, {}, "shape");
  b_.Op("Size", {x}, {}, "size");
  b_.Op("Rank", {u}, {}, "rank");
  b_.Op("Shape", {u}, {}, "open");
  EXPECT_EQ(After(FoldConstants),
            "x = Placeholder()\nu = Placeholder()\nshape = Const()\nsize = Const()\nrank = "
            "Const()\nopen = Shape(u)\n");
  EXPECT_EQ(shape.node->Attr<Tensor>("value")->DebugString(), Tensor::Of<int32_t>({2, 3}).DebugString());
}

TEST_F(PassTest, FoldingSettlesBroadcastAxesBeforeTheBatchIsKnown) {
  Endpoint a = Placeholder("a", PartialShape({PartialShape::kUnknown, 3}));
  Endpoint c = Placeholder("c", PartialShape({3}));
  Endpoint sa = b_.Op("Shape", {a}, {}, "sa"), sc = b_.Op("Shape", {c}, {}, "sc");
  Node* args = b_.AddNode("BroadcastGradientArgs", {sa, sc}, {}, "args");
  Endpoint sum = b_.Op("Sum", {a, args->output(1)}, {}, "sum");
  Endpoint y = b_.Op("Reshape", {sum, sc}, {}, "y");
  ASSERT_TRUE(b_.ok()) << b_.status();
  context_.fetches = {y};
  ASSERT_TRUE(RunPasses(&graph_, context_, {}).ok());
  EXPECT_EQ(GraphToString(graph_),
            "a = Placeholder()\nsc = Const()\nsum = Sum(a, args/output_1)\ny = Reshape(sum, "
            "sc)\nargs/output_1 = Const()\n");
}

TEST_F(PassTest, FoldingLeavesLargeResultsToTheStep) {
  Endpoint dims = b_.Ints({1000, 1000});
  Endpoint fill = b_.Op("Fill", {dims, b_.Scalar<float>(0)}, {}, "fill");
  bool asked = false;
  context_.evaluate = [&](const Node&, absl::Span<const Tensor>) -> StatusOr<std::vector<Tensor>> {
    asked = true;
    return std::vector<Tensor>{Tensor(DType::kFloat, Shape({1000, 1000}))};
  };
  context_.fetches = {fill};
  After(FoldConstants);
  EXPECT_TRUE(asked);
  EXPECT_EQ(fill.node->type(), "Fill");
  asked = false;
  Endpoint huge = b_.Op("Fill", {b_.Ints({100000, 1000}), b_.Scalar<float>(0)}, {}, "huge");
  context_.fetches = {huge};
  ASSERT_TRUE(Prune(&graph_, context_).ok());
  After(FoldConstants);
  EXPECT_FALSE(asked);
  EXPECT_EQ(huge.node->type(), "Fill");
}

TEST_F(PassTest, TwinsAreMergedTreeByTree) {
  Endpoint x = Placeholder("x"), z = Placeholder("z");
  Endpoint a = b_.Op("AddV2", {x, z}, {}, "a");
  Endpoint a2 = b_.Op("AddV2", {x, z}, {}, "a2");
  Endpoint n = b_.Op("Neg", {a}, {}, "n"), n2 = b_.Op("Neg", {a2}, {}, "n2");
  Endpoint y = b_.Op("Mul", {n, n2}, {}, "y");
  EXPECT_EQ(Before(),
            "x = Placeholder()\nz = Placeholder()\na = AddV2(x, z)\na2 = AddV2(x, z)\nn = "
            "Neg(a)\nn2 = Neg(a2)\ny = Mul(n, n2)\n");
  context_.fetches = {y};
  EXPECT_EQ(After(MergeCommonSubexpressions),
            "x = Placeholder()\nz = Placeholder()\na = AddV2(x, z)\nn = Neg(a)\ny = Mul(n, n)\n");
}

TEST_F(PassTest, WhatOnlyLooksAlikeIsNotMerged) {
  Endpoint x = Placeholder("x", PartialShape({2, 2}));
  std::vector<Endpoint> all = {
      b_.Op("MatMul", {x, x}, {}, "plain"),
      b_.Op("MatMul", {x, x}, {{"transpose_a", true}}, "turned"),
      b_.Op("Sub", {x, b_.Op("Neg", {x}, {}, "n")}, {}, "s1"),
  };
  all.push_back(b_.Op("Sub", {graph_.FindNode("n")->output(0), x}, {}, "s2"));
  b_.control_inputs = {b_.AddNode("NoOp", {}, {}, "gate")};
  all.push_back(b_.Op("MatMul", {x, x}, {}, "gated"));
  b_.control_inputs = {};
  b_.device = "/cpu:1";
  all.push_back(b_.Op("MatMul", {x, x}, {}, "elsewhere"));
  b_.device = "";
  Endpoint shape = b_.Ints({2});
  all.push_back(b_.Op("RandomUniform", {shape}, {{"dtype", DType::kFloat}}, "r1"));
  all.push_back(b_.Op("RandomUniform", {shape}, {{"dtype", DType::kFloat}}, "r2"));
  // Fetched nodes keep their names.
  Endpoint f1 = b_.Op("Neg", {x}, {}, "f1");
  context_.fetches = {f1};
  b_.Op("TestTuple", all, {}, "users");
  const std::string before = Before();
  EXPECT_EQ(After(MergeCommonSubexpressions), before);
}

TEST_F(PassTest, IdentitiesAreBypassedUnlessSomethingHangsOnThem) {
  Endpoint x = Placeholder("x"), p = Placeholder("p", PartialShape::Scalar(), DType::kBool);
  Endpoint i1 = b_.Op("Identity", {x}, {}, "i1"), i2 = b_.Op("Identity", {i1}, {}, "i2");
  Node* sw = b_.AddNode("Switch", {i2, p}, {}, "sw");
  Endpoint pivot = b_.Op("Identity", {sw->output(1)}, {}, "pivot");
  Endpoint waited = b_.Op("Identity", {x}, {}, "waited");
  b_.control_inputs = {waited.node};
  Endpoint y = b_.Op("Neg", {pivot}, {}, "y");
  b_.control_inputs = {};
  Endpoint fetched = b_.Op("Identity", {y}, {}, "fetched");
  EXPECT_EQ(Before(),
            "x = Placeholder()\np = Placeholder()\ni1 = Identity(x)\ni2 = Identity(i1)\nsw = "
            "Switch(i2, p)\n"
            "pivot = Identity(sw:1)\nwaited = Identity(x)\ny = Neg(pivot, ^waited)\nfetched = "
            "Identity(y)\n");
  context_.fetches = {fetched};
  EXPECT_EQ(After(RemoveIdentities),
            "x = Placeholder()\np = Placeholder()\nsw = Switch(x, p)\npivot = "
            "Identity(sw:1)\nwaited = Identity(x)\n"
            "y = Neg(pivot, ^waited)\nfetched = Identity(y)\n");
}

TEST_F(PassTest, AVariableIsReadWhenItsIdentitySaysSo) {
  Endpoint v =
      b_.Op("VariableV2", std::initializer_list<Endpoint>{}, {{"dtype", DType::kFloat}, {"shape", Shape({2})}}, "v");
  Endpoint y = b_.Op("Neg", {b_.Op("Identity", {v}, {}, "read")}, {}, "y");
  context_.fetches = {y};
  const std::string before = Before();
  EXPECT_EQ(After(RemoveIdentities), before);
}

class FuseTest : public PassTest {
 protected:
  FuseTest() {
    x_ = Placeholder("x", PartialShape({PartialShape::kUnknown, 4}));
    w_ = Placeholder("w", PartialShape({4, 3}));
    bias_ = Placeholder("b", PartialShape({3}));
    m_ = b_.Op("MatMul", {x_, w_}, {}, "m");
  }
  Endpoint x_, w_, bias_, m_;
};

TEST_F(FuseTest, ProductBiasAndActivationBecomeOne) {
  Endpoint h = b_.Op("BiasAdd", {m_, bias_}, {}, "h");
  Endpoint y = b_.Op("Relu", {h}, {}, "y");
  b_.Op("ReluGrad", {y, y}, {}, "grad");
  EXPECT_EQ(Before(),
            "x = Placeholder()\nw = Placeholder()\nb = Placeholder()\nm = MatMul(x, w)\nh = "
            "BiasAdd(m, b)\ny = Relu(h)\n"
            "grad = ReluGrad(y, y)\n");
  context_.fetches = {y};
  EXPECT_EQ(After(FuseMatMul),
            "x = Placeholder()\nw = Placeholder()\nb = Placeholder()\ny = _FusedMatMul(x, w, "
            "b)\ngrad = ReluGrad(y, y)\n");
  EXPECT_THAT(*y.node->Attr<std::vector<std::string>>("fused_ops"), ::testing::ElementsAre("BiasAdd", "Relu"));
  EXPECT_THAT(y.node->origins(), ::testing::ElementsAre("m", "h", "y"));
  EXPECT_EQ(y.shape().ToString(), "[?,3]");
}

TEST_F(FuseTest, AnAddedVectorIsABiasWhenItFitsTheRows) {
  Endpoint y = b_.Op("AddV2", {bias_, m_}, {}, "y");
  context_.fetches = {y};
  After(FuseMatMul);
  EXPECT_EQ(y.node->type(), "_FusedMatMul");
  EXPECT_EQ(y.node->input(2), bias_);
}

TEST_F(FuseTest, WhatOthersSeeStays) {
  Endpoint h = b_.Op("BiasAdd", {m_, bias_}, {}, "h");
  Endpoint y = b_.Op("Relu", {h}, {}, "y");
  Endpoint also = b_.Op("Neg", {h}, {}, "also");
  context_.fetches = {y, also};
  EXPECT_EQ(After(FuseMatMul),
            "x = Placeholder()\nw = Placeholder()\nb = Placeholder()\nh = _FusedMatMul(x, w, b)\ny "
            "= Relu(h)\nalso = Neg(h)\n");
}

TEST_F(FuseTest, AFetchedProductOrAScalarBiasIsNotFused) {
  Endpoint y = b_.Op("BiasAdd", {m_, bias_}, {}, "y");
  Endpoint m2 = b_.Op("MatMul", {x_, w_}, {}, "m2");
  Endpoint y2 = b_.Op("AddV2", {m2, Placeholder("s", PartialShape({1}))}, {}, "y2");
  context_.fetches = {m_, y, y2};
  const std::string before = Before();
  EXPECT_EQ(After(FuseMatMul), before);
}

TEST_F(FuseTest, OfAProductOnlyTheSliceIsComputed) {
  Endpoint part = b_.Op("Slice", {m_, b_.Ints({0, 1}), b_.Ints({-1, 2})}, {}, "part");
  context_.fetches = {part};
  After(SliceProducts);
  EXPECT_EQ(part.node->type(), "_SlicedMatMul");
  EXPECT_EQ(part.node->input(0), x_);
  EXPECT_EQ(part.node->input(1), w_);
  EXPECT_THAT(part.node->origins(), ::testing::ElementsAre("m", "part"));
}

TEST_F(FuseTest, AProductWithTwoUsersIsComputedWhole) {
  Endpoint left = b_.Op("Slice", {m_, b_.Ints({0, 0}), b_.Ints({-1, 1})}, {}, "left");
  Endpoint right = b_.Op("Slice", {m_, b_.Ints({0, 1}), b_.Ints({-1, 2})}, {}, "right");
  context_.fetches = {left, right};
  const std::string before = Before();
  EXPECT_EQ(After(SliceProducts), before);
}

TEST_F(FuseTest, EveryPassCanBeSwitchedOff) {
  Endpoint same = b_.Op("MatMul", {x_, w_}, {}, "same");
  Endpoint h = b_.Op("BiasAdd", {b_.Op("Identity", {m_}, {}, "i"), bias_}, {}, "h");
  Endpoint h2 = b_.Op("BiasAdd", {same, bias_}, {}, "h2");
  Endpoint s = b_.Op("Shape", {w_}, {}, "s");
  Endpoint large = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({100})}}, "large");
  Endpoint e = b_.Op("Exp", {b_.Neg(large)}, {}, "e");
  Endpoint table = b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({4, 2})}}, "table");
  Endpoint rows =
      b_.Op("GatherV2", {b_.Op("Identity", {table}, {}, "read"), b_.Ints({1}), b_.Scalar<int32_t>(0)}, {}, "rows");
  context_.fetches = {h, h2, s, e, rows};
  const std::string before = Before();
  ASSERT_TRUE(RunPasses(&graph_, context_, PassOptions::None()).ok());
  EXPECT_EQ(GraphToString(graph_), before);
  for (const Pass& pass : AllPasses()) {
    std::unique_ptr<Graph> copy = graph_.Clone();
    PassContext context;
    for (const char* name : {"h", "h2", "s", "e", "rows"}) context.fetches.push_back(*copy->FindEndpoint(name));
    PassOptions only = PassOptions::None();
    only.*pass.enabled = true;
    ASSERT_TRUE(RunPasses(copy.get(), context, only).ok());
    EXPECT_NE(GraphToString(*copy), before) << pass.name;
  }
}

class SavedReadsTest : public PassTest {
 protected:
  SavedReadsTest() {
    const AttrList attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}};
    w_ = b_.Op("VarHandleOp", {}, attrs, "w");
    read_ = b_.Op("ReadVariableOp", {w_}, {{"dtype", DType::kFloat}}, "read");
    const Endpoint prefix = Placeholder("prefix", PartialShape::Scalar(), DType::kString), x = Placeholder("x");
    const Endpoint names = Placeholder("names", {2}, DType::kString),
                   slices = Placeholder("slices", {2}, DType::kString);
    save_ = b_.AddNode("SaveV2", {{prefix, names, slices, read_, x}},
                       {{"dtypes", std::vector<DType>{DType::kFloat, DType::kFloat}}}, "save");
    context_.targets = {save_};
  }
  Endpoint w_, read_;
  Node* save_ = nullptr;
};

TEST_F(SavedReadsTest, AVariableIsSavedWithoutASnapshot) {
  EXPECT_THAT(Before(), testing::HasSubstr("save = SaveV2(prefix, names, slices, read, x)"));
  EXPECT_THAT(After(SaveVariablesInPlace), testing::HasSubstr("save = _SaveVariables(prefix, names, slices, w, x)"));
}

TEST_F(SavedReadsTest, ASnapshotThatSomethingElseHangsOnStays) {
  b_.control_inputs = {read_.node};
  b_.AddNode("NoOp", {}, {}, "after_reading");
  EXPECT_THAT(After(SaveVariablesInPlace), testing::HasSubstr("save = SaveV2("));
}

TEST_F(SavedReadsTest, AFetchedSnapshotStays) {
  context_.fetches = {read_};
  EXPECT_THAT(After(SaveVariablesInPlace), testing::HasSubstr("save = SaveV2("));
}

TEST_F(SavedReadsTest, AStepThatChangesVariablesKeepsItsSnapshots) {
  b_.AddNode("AssignVariableOp", {{w_, Placeholder("y")}}, {{"dtype", DType::kFloat}}, "assign");
  EXPECT_THAT(After(SaveVariablesInPlace), testing::HasSubstr("save = SaveV2("));
}

class RowSumsTest : public PassTest {
 protected:
  RowSumsTest() {
    table_ = b_.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({9, 2})}}, "table");
    ids_ = Placeholder("ids", PartialShape({PartialShape::kUnknown}), DType::kInt64);
    segments_ = Placeholder("segments", PartialShape({PartialShape::kUnknown}), DType::kInt64);
    unique_ = b_.AddNode("Unique", {ids_}, {}, "unique");
    gate_ = b_.AddNode("NoOp", {}, {}, "gate");
  }
  // The lookup of unique_; `device` is that of its last node.
  void AddSum(const char* op = "SparseSegmentMeanWithNumSegments", const char* device = "") {
    b_.control_inputs = {gate_};
    rows_ = b_.Op("ResourceGather", {table_, unique_->output(0)}, {{"dtype", DType::kFloat}}, "rows");
    b_.control_inputs = {};
    b_.device = device;
    std::vector<Endpoint> inputs = {rows_, unique_->output(1), segments_};
    if (absl::EndsWith(op, "WithNumSegments")) inputs.push_back(b_.Scalar<int32_t>(4));
    sum_ = b_.Op(op, inputs, {}, "sum");
    b_.device = "";
    context_.fetches = {sum_};
  }
  bool Fuses() {
    After(FuseRowSums);
    return sum_.node->is_type("_CombineResourceRows");
  }
  Endpoint table_, ids_, segments_, rows_, sum_;
  Node *unique_ = nullptr, *gate_ = nullptr;
};

TEST_F(RowSumsTest, TheSumReadsTheRowsOfTheVariable) {
  AddSum();
  EXPECT_TRUE(Fuses());
  ASSERT_TRUE(Prune(&graph_, context_).ok());
  EXPECT_EQ(graph_.FindNode("unique"), nullptr);
  EXPECT_EQ(graph_.FindNode("rows"), nullptr);
  EXPECT_EQ(sum_.node->input(0), table_);
  EXPECT_EQ(sum_.node->input(1), ids_);
  EXPECT_EQ(sum_.node->input(2), segments_);
  EXPECT_EQ(sum_.node->num_inputs(), 4);
  EXPECT_THAT(sum_.node->control_inputs(), ::testing::ElementsAre(gate_));
  EXPECT_THAT(sum_.node->origins(), ::testing::ElementsAre("unique", "rows", "sum"));
  EXPECT_EQ(*sum_.node->Attr<std::string>("combiner"), "mean");
  EXPECT_EQ(sum_.shape().ToString(), "[4,2]");
}

TEST_F(RowSumsTest, EveryCombinerHasItsSum) {
  for (const auto& [op, combiner] : std::vector<std::pair<const char*, const char*>>{
           {"SparseSegmentSum", "sum"}, {"SparseSegmentMean", "mean"}, {"SparseSegmentSqrtN", "sqrtn"}}) {
    AddSum(op);
    EXPECT_TRUE(Fuses());
    EXPECT_EQ(*sum_.node->Attr<std::string>("combiner"), combiner);
    EXPECT_EQ(sum_.node->num_inputs(), 3);
  }
}

TEST_F(RowSumsTest, TwoLookupsOfTheSameIdsBothReadTheirRows) {
  AddSum();
  const Endpoint first = sum_;
  AddSum();
  context_.fetches = {first, sum_};
  EXPECT_TRUE(Fuses());
  EXPECT_EQ(first.node->type(), "_CombineResourceRows");
}

TEST_F(RowSumsTest, ReadersOfUniqueKeepItAndTheSumDoesNotNeedIt) {
  AddSum();
  b_.Op("Neg", {unique_->output(1)}, {}, "reader");
  EXPECT_TRUE(Fuses());
  EXPECT_NE(graph_.FindNode("unique"), nullptr);
}

TEST_F(RowSumsTest, RowsThatSomethingElseNeedsAreGathered) {
  AddSum();
  b_.Op("Shape", {rows_}, {}, "reader");  // as a gradient has it
  EXPECT_FALSE(Fuses());
}

TEST_F(RowSumsTest, WhatIsOrderedAfterTheGatherStaysAfterIt) {
  AddSum();
  b_.control_inputs = {rows_.node};
  b_.AddNode("NoOp", {}, {}, "after");
  EXPECT_FALSE(Fuses());
}

TEST_F(RowSumsTest, FedAndFetchedTensorsStay) {
  AddSum();
  context_.fetches = {sum_, rows_};
  EXPECT_FALSE(Fuses());
  context_.fetches = {sum_};
  for (const Endpoint& fed : {rows_, unique_->output(0), unique_->output(1), sum_}) {
    context_.feeds = {fed};
    EXPECT_FALSE(Fuses()) << fed.name();
  }
}

TEST_F(RowSumsTest, NothingMovesToAnotherDevice) {
  AddSum("SparseSegmentSum", "/job:worker");
  EXPECT_FALSE(Fuses());
  AddSum("SparseSegmentSum");
  for (const Node* node : {unique_, rows_.node}) {
    graph_.SetAssignedDevice(graph_.FindNode(node->name()), "/job:ps/task:0/device:CPU:0");
    EXPECT_FALSE(Fuses()) << node->name();
    graph_.SetAssignedDevice(graph_.FindNode(node->name()), "");
  }
  for (const Node* node : {unique_, rows_.node, sum_.node}) {
    graph_.SetAssignedDevice(graph_.FindNode(node->name()), "/job:worker/task:0/device:GPU:0");
  }
  EXPECT_FALSE(Fuses());
}

TEST_F(RowSumsTest, OnlyTheSegmentsOfThatUniqueCount) {
  Node* const other = b_.AddNode("Unique", {ids_}, {}, "other");
  AddSum();
  graph_.SetInput(sum_.node, 1, other->output(1));
  EXPECT_FALSE(Fuses());
}

TEST_F(RowSumsTest, RowsOfWhatIsNoVariableAreGathered) {
  table_ = Placeholder("matrix", PartialShape({9, 2}));
  rows_ = b_.Op("GatherV2", {table_, unique_->output(0), b_.Scalar<int32_t>(0)}, {}, "rows");
  sum_ = b_.Op("SparseSegmentSum", {rows_, unique_->output(1), segments_}, {}, "sum");
  context_.fetches = {sum_};
  EXPECT_FALSE(Fuses());
}

}  // namespace
}  // namespace millrace
