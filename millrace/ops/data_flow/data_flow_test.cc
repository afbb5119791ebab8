// Accumulators, barriers, staging areas, arrays and tables: what golden cases do not show.
#include "millrace/base/cancellation.h"
#include "tests/ops/data_flow_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AccumulatorTest : public DataFlowTest {
 protected:
  AccumulatorTest() {
    acc_ = {Handle("ResourceConditionalAccumulator", {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}), 0};
    Node* const step = b_.AddNode("Placeholder", {}, {{"dtype", DType::kInt64}}, "step");
    Node* const gradient = b_.AddNode("Placeholder", {}, {{"dtype", DType::kFloat}}, "gradient");
    apply_ = b_.AddNode("ResourceAccumulatorApplyGradient", {acc_, {step, 0}, {gradient, 0}});
    take_ = b_.AddNode("ResourceAccumulatorTakeGradient", {acc_, Int(2)}, {{"dtype", DType::kFloat}});
    count_ = b_.AddNode("ResourceAccumulatorNumAccumulated", {acc_});
  }
  Status Apply(int64_t step, std::initializer_list<float> gradient) {
    std::vector<Tensor> none;
    return session_->Run({}, {{"step", Tensor::Scalar<int64_t>(step)}, {"gradient", Tensor::Of<float>(gradient)}}, {},
                         {apply_->name()}, &none, nullptr);
  }
  Endpoint acc_;
  Node *apply_, *take_, *count_;
};

TEST_F(AccumulatorTest, ATakeWaitsForEnoughFreshGradients) {
  Open();
  std::vector<Tensor> got;
  Background waiting([&] {
    auto result = Get(take_);
    if (result.ok()) got = *result;
    return result.status();
  });
  AwaitWaits(1);
  EXPECT_THAT(waits_->List()[0].what, HasSubstr("accumulator"));
  ASSERT_TRUE(Apply(0, {1, 2}).ok());
  ASSERT_TRUE(Apply(-1, {100, 100}).ok());  // stale: dropped without an error
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(1));
  ASSERT_TRUE(Apply(0, {3, 6}).ok());
  ASSERT_TRUE(waiting.Result().ok());
  EXPECT_THAT(got[0].flat<float>(), ElementsAre(2, 4));
  // Taking advanced the step.
  ASSERT_TRUE(Apply(0, {1, 1}).ok());
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(0));
  ASSERT_TRUE(Apply(1, {1, 1}).ok());
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(1));
}

TEST_F(AccumulatorTest, AMeanIsTheSumInOrderDividedByTheCount) {
  // Sums that depend on their order.
  const std::vector<float> given = {1e8f, 3.3f, -1e8f, 0.7f, 1e-3f, 17.1f, -5.5f};
  std::vector<Node*> takes = {nullptr};
  for (int count = 1; count <= 7; ++count) {
    takes.push_back(b_.AddNode("ResourceAccumulatorTakeGradient", {acc_, Int(count)}, {{"dtype", DType::kFloat}}));
  }
  Open();
  for (int count = 1; count <= 7; ++count) {
    float sum = 0;
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(Apply(count, {given[i], 1}).ok());
      sum = i == 0 ? given[0] : sum + given[i];
    }
    EXPECT_THAT(Values<float>(takes[count]), ElementsAre(sum / static_cast<float>(count), 1)) << count;
  }
}

TEST_F(AccumulatorTest, ACancelledTakeLeavesTheGradients) {
  Open();
  ASSERT_TRUE(Apply(0, {1, 2}).ok());
  CancellationManager cancel;
  Background waiting([&] { return Do(take_, {.cancellation = &cancel}); });
  AwaitWaits(1);
  cancel.StartCancel();
  EXPECT_EQ(waiting.Result().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(1));
}

TEST_F(AccumulatorTest, AGradientOfAnotherShapeIsRefused) {
  Open();
  ExpectError(Apply(0, {1, 2, 3}), absl::StatusCode::kInvalidArgument, "Shape mismatch: expected [2], got [3]");
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(0));
}

class BarrierTest : public DataFlowTest {
 protected:
  BarrierTest() {
    barrier_ = {
        Handle("Barrier", {{"component_types", std::vector<DType>{DType::kFloat, DType::kInt32}},
                           {"shapes", std::vector<PartialShape>{PartialShape::Scalar(), PartialShape::Scalar()}}}),
        0};
  }
  Node* Insert(const std::vector<std::string>& keys, const Tensor& values, int component) {
    return b_.AddNode("BarrierInsertMany", {barrier_, b_.Const(Tensor::FromVector(keys)), b_.Const(values)},
                      {{"component_index", component}});
  }
  Node* Take(int n, bool small = false) {
    return b_.AddNode(
        "BarrierTakeMany", {barrier_, Int(n)},
        {{"component_types", std::vector<DType>{DType::kFloat, DType::kInt32}}, {"allow_small_batch", small}});
  }
  Node* Close(bool cancel = false) {
    return b_.AddNode("BarrierClose", {barrier_}, {{"cancel_pending_enqueues", cancel}});
  }
  Endpoint barrier_;
};

TEST_F(BarrierTest, ATakeWaitsForTheLastComponent) {
  Node* const first = Insert({"a", "b"}, Tensor::Of<float>({1, 2}), 0);
  Node* const second = Insert({"b", "a"}, Tensor::Of<int32_t>({20, 10}), 1);
  Node* const take = Take(2);
  Open();
  ASSERT_TRUE(Do(first).ok());
  std::vector<Tensor> got;
  Background waiting([&] {
    auto result = Get(take);
    if (result.ok()) got = *result;
    return result.status();
  });
  AwaitWaits(1);
  ASSERT_TRUE(Do(second).ok());
  ASSERT_TRUE(waiting.Result().ok());
  EXPECT_THAT(got[1].flat<std::string>(), ElementsAre("b", "a"));
  EXPECT_THAT(got[2].flat<float>(), ElementsAre(2, 1));
  EXPECT_THAT(got[3].flat<int32_t>(), ElementsAre(20, 10));
}

TEST_F(BarrierTest, AClosedBarrierTakesNoNewKeysButFinishesOldOnes) {
  Node* const first = Insert({"a"}, Tensor::Of<float>({1}), 0);
  Node* const second = Insert({"a"}, Tensor::Of<int32_t>({10}), 1);
  Node* const other = Insert({"z"}, Tensor::Of<float>({1}), 0);
  Node* const close = Close();
  Node* const take = Take(1);
  Node* const take_small = Take(3, /*small=*/true);
  Open();
  ASSERT_TRUE(Do(first).ok());
  ASSERT_TRUE(Do(close).ok());
  ExpectError(Do(other), absl::StatusCode::kCancelled, "is closed");
  ASSERT_TRUE(Do(second).ok());
  EXPECT_TRUE(Get(take).ok());
  ExpectError(Get(take).status(), absl::StatusCode::kOutOfRange, "is closed and has insufficient elements");
  ExpectError(Get(take_small).status(), absl::StatusCode::kOutOfRange, "is closed and has insufficient elements");
  ExpectError(Do(close), absl::StatusCode::kCancelled, "already closed");
}

TEST_F(BarrierTest, AComponentComesOnce) {
  Node* const first = Insert({"a"}, Tensor::Of<float>({1}), 0);
  Node* const twice = Insert({"b", "b"}, Tensor::Of<float>({1, 2}), 0);
  Node* const incomplete = b_.AddNode("BarrierIncompleteSize", {barrier_});
  Open();
  ASSERT_TRUE(Do(first).ok());
  ExpectError(Do(first), absl::StatusCode::kInvalidArgument, "Key a already has a value for component 0");
  ExpectError(Do(twice), absl::StatusCode::kInvalidArgument, "Key b already has a value for component 0");
  EXPECT_THAT(Values<int32_t>(incomplete), ElementsAre(1));
}

TEST_F(BarrierTest, DroppingWhatIsIncompleteEndsAWaitingTake) {
  Node* const first = Insert({"a"}, Tensor::Of<float>({1}), 0);
  Node* const take = Take(1);
  Node* const close = Close(/*cancel=*/true);
  Open();
  ASSERT_TRUE(Do(first).ok());
  Background waiting([&] { return Get(take).status(); });
  AwaitWaits(1);
  ASSERT_TRUE(Do(close).ok());
  EXPECT_EQ(waiting.Result().code(), absl::StatusCode::kOutOfRange);
}

using StagingTest = DataFlowTest;

TEST_F(StagingTest, AFullAreaHoldsAStageUntilSomethingIsTaken) {
  const AttrList attrs = {{"dtypes", std::vector<DType>{DType::kInt32}}, {"capacity", 1}, {"shared_name", "s"}};
  Node* const stage = b_.AddNode("Stage", {Int(4)}, attrs);
  Node* const unstage = b_.AddNode("Unstage", {}, attrs);
  Open();
  ASSERT_TRUE(Do(stage).ok());
  Background waiting([&] { return Do(stage); });
  AwaitWaits(1);
  EXPECT_THAT(Values<int32_t>(unstage), ElementsAre(4));
  EXPECT_TRUE(waiting.Result().ok());
  EXPECT_THAT(Values<int32_t>(unstage), ElementsAre(4));
}

TEST_F(StagingTest, KeysAreWaitedForEachOnItsOwn) {
  const AttrList attrs = {{"dtypes", std::vector<DType>{DType::kInt32}}, {"shared_name", "s"}};
  const Endpoint all = b_.Ints({0});
  const auto stage = [&](int64_t key) {
    return b_.AddNode("MapStage", {b_.Scalar<int64_t>(key), all, Int(static_cast<int32_t>(key))}, attrs);
  };
  const auto unstage = [&](int64_t key) { return b_.AddNode("MapUnstage", {b_.Scalar<int64_t>(key), all}, attrs); };
  Node *const stage1 = stage(1), *const stage2 = stage(2);
  Node *const unstage1 = unstage(1), *const unstage2 = unstage(2);
  Open();
  Background first([&] { return Get(unstage1).status(); });
  AwaitWaits(1);
  ASSERT_TRUE(Do(stage2).ok());
  EXPECT_THAT(Values<int32_t>(unstage2), ElementsAre(2));
  ASSERT_TRUE(Do(stage1).ok());
  EXPECT_TRUE(first.Result().ok());
}

using TensorArrayTest = DataFlowTest;

TEST_F(TensorArrayTest, AHugeArrayCostsNoMemory) {
  Node* const array = b_.AddNode("TensorArrayV3", {Int(2000000000)}, {{"dtype", DType::kFloat}});
  const Endpoint flow = b_.Op("TensorArrayWriteV3", {{array, 0}, Int(1999999999), b_.Scalar<float>(3), {array, 1}});
  Node* const read = b_.AddNode("TensorArrayReadV3", {{array, 0}, Int(1999999999), flow}, {{"dtype", DType::kFloat}});
  Open();
  EXPECT_THAT(Values<float>(read), ElementsAre(3));
}

TEST_F(TensorArrayTest, OldFormsGoByNames) {
  Node* const array = b_.AddNode("TensorArrayV2", {Int(2)}, {{"dtype", DType::kFloat}});
  const Endpoint flow = b_.Op("TensorArrayScatterV2",
                              {{array, 0}, b_.Ints({0, 1}), b_.Const(Tensor::Of<float>({5, 6})), b_.Scalar<float>(0)});
  Node* const packed =
      b_.AddNode("TensorArrayGatherV2", {{array, 0}, b_.Ints({1, 0}), flow}, {{"dtype", DType::kFloat}});
  Node* const oldest = b_.AddNode("TensorArray", {Int(2)}, {{"dtype", DType::kFloat}});
  const Endpoint unpacked =
      b_.Op("TensorArrayUnpack", {{oldest, 0}, b_.Const(Tensor::Of<float>({7, 8})), b_.Scalar<float>(0)});
  Node* const pack = b_.AddNode("TensorArrayPack", {{oldest, 0}, unpacked}, {{"dtype", DType::kFloat}});
  Open();
  EXPECT_THAT(Values<float>(packed), ElementsAre(6, 5));
  EXPECT_THAT(Values<float>(pack), ElementsAre(7, 8));
}

TEST_F(TensorArrayTest, AGradientArraySumsWhatIsWritten) {
  Node* const array = b_.AddNode("TensorArrayV3", {Int(1)}, {{"dtype", DType::kFloat}});
  const Endpoint written = b_.Op("TensorArrayWriteV3", {{array, 0}, Int(0), b_.Scalar<float>(3), {array, 1}});
  Node* const gradient = b_.AddNode("TensorArrayGradV3", {{array, 0}, written}, {{"source", "g"}});
  const Endpoint once = b_.Op("TensorArrayWriteV3", {{gradient, 0}, Int(0), b_.Scalar<float>(2), {gradient, 1}});
  const Endpoint twice = b_.Op("TensorArrayWriteV3", {{gradient, 0}, Int(0), b_.Scalar<float>(5), once});
  Node* const read = b_.AddNode("TensorArrayReadV3", {{gradient, 0}, Int(0), twice}, {{"dtype", DType::kFloat}});
  Open();
  EXPECT_THAT(Values<float>(read), ElementsAre(7));
  EXPECT_THAT(Values<float>(read), ElementsAre(7));  // another step has arrays of its own
}

using StackTest = DataFlowTest;

TEST_F(StackTest, KnowsItsLimits) {
  Node* const stack = b_.AddNode("StackV2", {Int(1)}, {{"elem_type", DType::kFloat}, {"stack_name", "st"}});
  Node* const pop = b_.AddNode("StackPopV2", {{stack, 0}}, {{"elem_type", DType::kFloat}});
  Node* const push = b_.AddNode("StackPushV2", {{stack, 0}, b_.Scalar<float>(1)});
  b_.control_inputs = {push};
  Node* const again = b_.AddNode("StackPushV2", {{stack, 0}, b_.Scalar<float>(1)});
  Open();
  ExpectError(Get(pop).status(), absl::StatusCode::kInvalidArgument, "is empty when calling Pop()");
  ExpectError(Get(again).status(), absl::StatusCode::kInvalidArgument, "overflowed its max_size (1)");
}

class TableTest : public DataFlowTest {
 protected:
  Endpoint Table(const char* op, DType key, DType value) {
    return {Handle(op, {{"key_dtype", key}, {"value_dtype", value}}), 0};
  }
};

TEST_F(TableTest, IsFilledOnce) {
  const Endpoint table = Table("HashTableV2", DType::kString, DType::kInt64);
  const Endpoint keys = b_.Const(Tensor::Of<std::string>({"a", "b"}));
  Node* const fill = b_.AddNode("InitializeTableV2", {table, keys, b_.Const(Tensor::Of<int64_t>({1, 2}))});
  Node* const other = b_.AddNode("InitializeTableV2", {table, keys, b_.Const(Tensor::Of<int64_t>({3, 4}))});
  Node* const find = b_.AddNode("LookupTableFindV2", {table, keys, b_.Scalar<int64_t>(-1)});
  Node* const insert = b_.AddNode("LookupTableInsertV2", {table, keys, b_.Const(Tensor::Of<int64_t>({3, 4}))});
  Node* const twice = b_.AddNode(
      "InitializeTableV2", {Table("HashTableV2", DType::kString, DType::kInt64),
                            b_.Const(Tensor::Of<std::string>({"a", "a"})), b_.Const(Tensor::Of<int64_t>({1, 2}))});
  Node* const nothing = b_.AddNode("InitializeTableV2", {table, b_.Const(Tensor(DType::kString, Shape({0}))),
                                                         b_.Const(Tensor(DType::kInt64, Shape({0})))});
  Open();
  ExpectError(Do(nothing), absl::StatusCode::kInvalidArgument, "cannot be empty");
  ExpectError(Get(find).status(), absl::StatusCode::kFailedPrecondition, "Table not initialized");
  ASSERT_TRUE(Do(fill).ok());
  ASSERT_TRUE(Do(other).ok());  // no effect
  EXPECT_THAT(Values<int64_t>(find), ElementsAre(1, 2));
  ExpectError(Do(insert), absl::StatusCode::kUnimplemented, "Insert not supported");
  ExpectError(Do(twice), absl::StatusCode::kFailedPrecondition, "different value for same key");
}

TEST_F(TableTest, DenseTablesKeepTwoKeysForThemselves) {
  Node* const table = b_.AddNode("MutableDenseHashTableV2", {b_.Scalar<int64_t>(-1), b_.Scalar<int64_t>(-2)},
                                 {{"value_dtype", DType::kFloat}, {"initial_num_buckets", 4}});
  std::vector<int64_t> many(100);
  std::vector<float> squares(100);
  for (int i = 0; i < 100; ++i) squares[i] = static_cast<float>((many[i] = i) * i);
  const Endpoint keys = b_.Const(Tensor::FromVector(many));
  Node* const insert = b_.AddNode("LookupTableInsertV2", {{table, 0}, keys, b_.Const(Tensor::FromVector(squares))});
  Node* const remove = b_.AddNode("LookupTableRemoveV2", {{table, 0}, b_.Const(Tensor::Of<int64_t>({7, 9}))});
  Node* const find = b_.AddNode("LookupTableFindV2",
                                {{table, 0}, b_.Const(Tensor::Of<int64_t>({7, 8, 99, 100})), b_.Scalar<float>(-1)});
  Node* const size = b_.AddNode("LookupTableSizeV2", {{table, 0}});
  Node* const bad = b_.AddNode("LookupTableInsertV2",
                               {{table, 0}, b_.Const(Tensor::Of<int64_t>({-2})), b_.Const(Tensor::Of<float>({1}))});
  Node* const matrix =
      b_.AddNode("LookupTableFindV2",
                 {{table, 0}, b_.Const(Tensor::Of<int64_t>(Shape({2, 2}), {1, 2, 3, 4})), b_.Scalar<float>(-1)});
  Open();
  ExpectError(Get(matrix).status(), absl::StatusCode::kInvalidArgument, "Expected key shape [2]");
  ASSERT_TRUE(Do(insert).ok());
  ASSERT_TRUE(Do(remove).ok());
  EXPECT_THAT(Values<int64_t>(size), ElementsAre(98));
  EXPECT_THAT(Values<float>(find), ElementsAre(-1, 64, 99 * 99, -1));
  ExpectError(Do(bad), absl::StatusCode::kInvalidArgument, "deleted_key as a table key is not allowed");
}

}  // namespace
}  // namespace millrace
