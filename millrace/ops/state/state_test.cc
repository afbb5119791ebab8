#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StateTest : public OpSessionTest {
 protected:
  Endpoint RefVariable(const std::string& name, PartialShape shape, DType dtype = DType::kFloat) {
    return b_.Op("VariableV2", {}, {{"dtype", dtype}, {"shape", shape}}, name);
  }
  Endpoint Handle(const std::string& name, PartialShape shape, DType dtype = DType::kFloat) {
    return b_.Op("VarHandleOp", {}, {{"dtype", dtype}, {"shape", shape}, {"shared_name", name}}, name);
  }
  Node* Assign(Endpoint variable, const Tensor& value) {
    const bool handle = variable.dtype() == DType::kResource;
    return b_.AddNode(handle ? "AssignVariableOp" : "Assign", {variable, b_.Const(value)});
  }
  Endpoint Read(Endpoint handle) { return b_.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}); }
  static Tensor Ten() { return Tensor::Of<float>({10, 20, 30}); }
};

TEST_F(StateTest, ReadOfUninitializedVariableNamesIt) {
  const Endpoint value = b_.Op("Identity", {RefVariable("weights", {3})});
  const Status status = Fetch({value}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("uninitialized value weights"));
  const Status by_handle = Fetch({Read(Handle("bias", {3}))}).status();
  EXPECT_EQ(by_handle.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(by_handle.message()), HasSubstr("bias"));
}

TEST_F(StateTest, UpdateOfUninitializedResourceIsNotFound) {
  Node* add = b_.AddNode("AssignAddVariableOp", {Handle("counter", {3}), b_.Const(Ten())});
  const Status status = Run(add);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("counter"));
}

TEST_F(StateTest, AssignRefusesAnotherShapeAndKeepsTheOldValue) {
  const Endpoint v = RefVariable("v", PartialShape());
  ASSERT_TRUE(Run(Assign(RefVariable("w", {3}), Ten())).ok());
  ASSERT_TRUE(Run(Assign(v, Ten())).ok());
  Graph& graph = graph_;
  Node* bad = graph
                  .AddNode({.name = "bad",
                            .op = "Assign",
                            .inputs = {graph.FindNode("w")->output(0), b_.Const(Tensor::Scalar(1.f))}})
                  .value();
  const Status status = Run(bad);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bad"));
  EXPECT_THAT(Values<float>(b_.Op("Identity", {graph.FindNode("w")->output(0)})), ElementsAre(10, 20, 30));
}

TEST_F(StateTest, AssignedConstantIsNotChangedByUpdates) {
  const Endpoint v = Handle("v", {3});
  const Endpoint constant = b_.Const(Ten());
  Node* assign = b_.AddNode("AssignVariableOp", {v, constant});
  Node* add = b_.AddNode("AssignAddVariableOp", {v, b_.Const(Ten())});
  ASSERT_TRUE(Run(assign).ok());
  ASSERT_TRUE(Run(add).ok());
  EXPECT_THAT(Values<float>(Read(v)), ElementsAre(20, 40, 60));
  EXPECT_THAT(Values<float>(constant), ElementsAre(10, 20, 30));
  ASSERT_TRUE(Run(assign).ok());
  EXPECT_THAT(Values<float>(Read(v)), ElementsAre(10, 20, 30));
}

TEST_F(StateTest, ValueReadBeforeAnUpdateStaysAsItWas) {
  const Endpoint v = Handle("v", {3});
  ASSERT_TRUE(Run(Assign(v, Ten())).ok());
  const auto before = Fetch({Read(v)});
  ASSERT_TRUE(before.ok());
  Node* subtract = b_.AddNode("AssignSubVariableOp", {v, b_.Const(Ten())});
  ASSERT_TRUE(Run(subtract).ok());
  EXPECT_THAT((*before)[0].flat<float>(), ElementsAre(10, 20, 30));
  EXPECT_THAT(Values<float>(Read(v)), ElementsAre(0, 0, 0));
}

TEST_F(StateTest, DestroyedVariableIsUninitializedAndCanBeAssignedAgain) {
  const Endpoint v = Handle("v", {3});
  Node* assign = Assign(v, Ten());
  const Endpoint initialized = b_.Op("VarIsInitializedOp", {v});
  Node* strict = b_.AddNode("DestroyResourceOp", {v}, {{"ignore_lookup_error", false}});
  EXPECT_EQ(Run(strict).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Run(assign).ok());
  EXPECT_THAT(Values<bool>(initialized), ElementsAre(true));
  ASSERT_TRUE(Run(strict).ok());
  EXPECT_THAT(Values<bool>(initialized), ElementsAre(false));
  ASSERT_TRUE(Run(assign).ok());
  EXPECT_THAT(Values<float>(Read(v)), ElementsAre(10, 20, 30));
}

TEST_F(StateTest, ScatterAddsRepeatedIndicesInOrder) {
  const Endpoint v = Handle("v", {3});
  ASSERT_TRUE(Run(Assign(v, Ten())).ok());
  Node* scatter = b_.AddNode("ResourceScatterAdd", {v, b_.Ints({2, 0, 2}), b_.Const(Tensor::Of<float>({1, 2, 3}))});
  ASSERT_TRUE(Run(scatter).ok());
  EXPECT_THAT(Values<float>(Read(v)), ElementsAre(12, 20, 34));
}

TEST_F(StateTest, ScatterWithOneBadIndexChangesNothing) {
  const Endpoint v = RefVariable("v", {3});
  ASSERT_TRUE(Run(Assign(v, Ten())).ok());
  Node* scatter = b_.AddNode("ScatterUpdate", {v, b_.Ints({0, 3}), b_.Const(Tensor::Of<float>({1, 2}))});
  const Status status = Run(scatter);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("indices[1] = 3 is not in [0, 3)"));
  EXPECT_THAT(Values<float>(b_.Op("Identity", {v})), ElementsAre(10, 20, 30));
}

TEST_F(StateTest, IntegerScatterDivRefusesZeroAndWrapsTheLeastNumber) {
  const Endpoint v = b_.Op("VariableV2", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape({2})}}, "v");
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  ASSERT_TRUE(Run(Assign(v, Tensor::Of<int32_t>({kLeast, 7}))).ok());
  Node* by_zero = b_.AddNode("ScatterDiv", {v, b_.Ints({1}), b_.Ints({0})});
  EXPECT_EQ(Run(by_zero).code(), absl::StatusCode::kInvalidArgument);
  Node* by_minus_one = b_.AddNode("ScatterDiv", {v, b_.Ints({0, 1}), b_.Ints({-1, -1})});
  ASSERT_TRUE(Run(by_minus_one).ok());
  EXPECT_THAT(Values<int32_t>(b_.Op("Identity", {v})), ElementsAre(kLeast, -7));
}

TEST_F(StateTest, ScatterNdTakesTheLesserOrGreaterPlaceByPlace) {
  const Endpoint places = b_.Const(Tensor::Of<int32_t>(Shape({2, 1}), {0, 2}));
  const Endpoint updates = b_.Const(Tensor::Of<float>({15, 15}));
  for (const bool handle : {false, true}) {
    const std::string suffix = handle ? "h" : "r", prefix = handle ? "Resource" : "";
    for (const bool max : {false, true}) {
      const std::string name = (max ? "max" : "min") + suffix;
      const Endpoint v = handle ? Handle(name, {3}) : RefVariable(name, {3});
      ASSERT_TRUE(Run(Assign(v, Ten())).ok());
      ASSERT_TRUE(Run(b_.AddNode(prefix + (max ? "ScatterNdMax" : "ScatterNdMin"), {v, places, updates})).ok());
      const std::vector<float> result = Values<float>(handle ? Read(v) : b_.Op("Identity", {v}));
      EXPECT_EQ(result, max ? std::vector<float>({15, 20, 30}) : std::vector<float>({10, 20, 15})) << name;
    }
  }
}

TEST_F(StateTest, ScatterNdIntoAScalarIsRefused) {
  const Endpoint v = Handle("v", {});
  ASSERT_TRUE(Run(Assign(v, Tensor::Scalar(1.0f))).ok());
  const Endpoint place = b_.Const(Tensor::Of<int32_t>(Shape({1, 1}), {0}));
  const Status status = Run(b_.AddNode("ResourceScatterNdUpdate", {v, place, b_.Const(Tensor::Of<float>({0.22f}))}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Output must be at least 1-D"));
}

TEST_F(StateTest, SeveralVariablesAreReadAtOnce) {
  const Endpoint a = Handle("a", {3}), b = Handle("b", {1});
  ASSERT_TRUE(Run(Assign(a, Ten())).ok());
  Node* read =
      b_.AddNode("_ReadVariablesOp", {a, b}, {{"N", 2}, {"dtypes", std::vector<DType>{DType::kFloat, DType::kFloat}}});
  const Status missing = Fetch({read->output(0), read->output(1)}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Run(Assign(b, Tensor::Of<float>({7}))).ok());
  ASSERT_TRUE(Run(b_.AddNode("DisableCopyOnRead", {a})).ok());
  const auto results = Fetch({read->output(0), read->output(1)});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[0].flat<float>(), ElementsAre(10, 20, 30));
  EXPECT_THAT((*results)[1].flat<float>(), ElementsAre(7));
}

TEST_F(StateTest, IdentityOfAReferenceIsReadWhenItIsUsed) {
  const Endpoint v = RefVariable("v", {3});
  ASSERT_TRUE(Run(Assign(v, Ten())).ok());
  const Endpoint read = b_.Op("Identity", {v});
  Node* add = b_.AddNode("AssignAdd", {v, b_.Const(Ten())});
  b_.control_inputs = {add};
  const Endpoint after = b_.Neg(read);
  b_.control_inputs = {};
  EXPECT_THAT(Values<float>(after), ElementsAre(-20, -40, -60));
}

TEST_F(StateTest, CountUpToEndsWithOutOfRange) {
  const Endpoint v = b_.Op("VariableV2", {}, {{"dtype", DType::kInt64}, {"shape", PartialShape::Scalar()}}, "n");
  ASSERT_TRUE(Run(Assign(v, Tensor::Scalar<int64_t>(0))).ok());
  const Endpoint count = b_.Op("CountUpTo", {v}, {{"limit", 2}});
  EXPECT_THAT(Values<int64_t>(count), ElementsAre(0));
  EXPECT_THAT(Values<int64_t>(count), ElementsAre(1));
  EXPECT_EQ(Fetch({count}).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(StateTest, VariableOfAnotherTypeUnderTheSameNameIsRefused) {
  ASSERT_TRUE(Run(Assign(Handle("shared", {3}), Ten())).ok());
  const Endpoint other = b_.Op(
      "VarHandleOp", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape({3})}, {"shared_name", "shared"}}, "other");
  const Status status = Fetch({b_.Op("ReadVariableOp", {other}, {{"dtype", DType::kInt32}})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("shared"));
}

TEST_F(StateTest, GatherFromAReferenceTakesRowsWithoutASnapshotAndNamesABadIndex) {
  const Endpoint v = RefVariable("table", {3, 2});
  const Tensor start = Tensor::Of<float>(Shape({3, 2}), {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(Run(Assign(v, start)).ok());
  const Endpoint ids = b_.Const(Tensor::Of<int64_t>({2, 0, 2}));
  const Endpoint rows = b_.Op("GatherV2", {b_.Op("Identity", {v}), ids, b_.Scalar<int32_t>(0)});
  Node* update = b_.AddNode("ScatterAdd", {v, ids, rows});
  const auto out = Fetch({rows}, {update});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT((*out)[0].flat<float>(), ElementsAre(5, 6, 1, 2, 5, 6));
  EXPECT_THAT(Values<float>(b_.Op("Identity", {v})), ElementsAre(2, 4, 3, 4, 15, 18));
  const Endpoint bad =
      b_.Op("GatherV2", {b_.Op("Identity", {v}), b_.Const(Tensor::Of<int64_t>({3})), b_.Scalar<int32_t>(0)});
  const Status status = Fetch({bad}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("indices[0] = 3 is not in [0, 3)"));
}

TEST_F(StateTest, ScatteredUpdatesOfOneRowKeepTheirOrderOnAnyNumberOfThreads) {
  const Endpoint v = Handle("table", {1000, 16});
  Tensor zeros(DType::kFloat, Shape({1000, 16}));
  std::fill_n(zeros.data<float>(), 16000, 0.0f);
  ASSERT_TRUE(Run(Assign(v, zeros)).ok());
  Tensor ids(DType::kInt32, Shape({5000})), rows(DType::kFloat, Shape({5000, 16}));
  for (int i = 0; i < 5000; ++i) {
    ids.data<int32_t>()[i] = i * 7 % 1000;
    std::fill_n(rows.data<float>() + i * 16, 16, static_cast<float>(i));
  }
  ASSERT_TRUE(
      Run(b_.AddNode("ResourceScatterUpdate", {v, b_.Const(ids), b_.Const(rows)}, {{"dtype", DType::kFloat}})).ok());
  const std::vector<float> after = Values<float>(Read(v));
  for (int i = 4000; i < 5000; ++i) EXPECT_EQ(after[i * 7 % 1000 * 16 + 15], i);
}

}  // namespace
}  // namespace millrace
