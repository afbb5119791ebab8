// Accumulators in fixed order, and the signal that workers wait for.
#include "millrace/base/cancellation.h"
#include "tests/ops/data_flow_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Numbers whose sum depends on the order of additions.
constexpr float kValues[] = {1e8f, 3.3f, -1e8f, 0.7f, 1e-3f};
constexpr int kShards = 5;

class ShardAccumulatorTest : public DataFlowTest {
 protected:
  ShardAccumulatorTest() {
    acc_ = {Handle("MillraceShardAccumulator",
                   {{"dtype", DType::kFloat}, {"shape", PartialShape({1})}, {"shards", kShards}}),
            0};
    step_ = b_.AddNode("Placeholder", {}, {{"dtype", DType::kInt64}}, "step");
    gradient_ = b_.AddNode("Placeholder", {}, {{"dtype", DType::kFloat}}, "gradient");
    take_ = b_.AddNode("AccumulatorTakeGradient", {acc_, Int(kShards)}, {{"dtype", DType::kFloat}});
    count_ = b_.AddNode("AccumulatorNumAccumulated", {acc_});
    dropped_ = b_.AddNode("MillraceAccumulatorNumDropped", {acc_});
    set_ = b_.AddNode("AccumulatorSetGlobalStep", {acc_, {step_, 0}});
    for (int first = 0; first < kShards; ++first) {
      for (int last = first + 1; last <= kShards; ++last) {
        apply_[{first, last}] = b_.AddNode("MillraceShardAccumulatorApply", {acc_, {step_, 0}, {gradient_, 0}},
                                           {{"first", first}, {"last", last}});
      }
    }
  }

  Status Apply(int64_t step, int first, int last, std::initializer_list<float> gradient) {
    std::vector<Tensor> none;
    return session_->Run({}, {{"step", Tensor::Scalar<int64_t>(step)}, {"gradient", Tensor::Of<float>(gradient)}}, {},
                         {apply_[{first, last}]->name()}, &none, nullptr);
  }
  void Give(int64_t step, int shard) { ASSERT_EQ(Apply(step, shard, shard + 1, {kValues[shard]}), absl::OkStatus()); }
  void SetStep(int64_t step) {
    std::vector<Tensor> none;
    ASSERT_EQ(session_->Run({}, {{"step", Tensor::Scalar<int64_t>(step)}}, {}, {set_->name()}, &none, nullptr),
              absl::OkStatus());
  }
  float Taken() { return Values<float>(take_)[0]; }

  Endpoint acc_;
  Node *step_, *gradient_, *take_, *count_, *dropped_, *set_;
  std::map<std::pair<int, int>, Node*> apply_;
};

// The order of the tree: a power of two on the left.
float Mean() {
  const float* const v = kValues;
  return (((v[0] + v[1]) + (v[2] + v[3])) + v[4]) / 5.0f;
}

TEST_F(ShardAccumulatorTest, TheMeanDoesNotDependOnTheOrderOfArrivalOrOnWhoAddedWhat) {
  Open();
  std::vector<int> order = {0, 1, 2, 3, 4};
  int64_t step = 0;
  do {
    for (const int shard : order) Give(step, shard);
    ASSERT_EQ(Taken(), Mean());
    ++step;
  } while (std::next_permutation(order.begin(), order.end()));
  // A worker has added up what it could.
  ASSERT_EQ(Apply(step, 4, 5, {kValues[4]}), absl::OkStatus());
  ASSERT_EQ(Apply(step, 2, 4, {kValues[2] + kValues[3]}), absl::OkStatus());
  Give(step, 1);
  Give(step, 0);
  EXPECT_EQ(Taken(), Mean());
  EXPECT_THAT(Values<int64_t>(dropped_), ElementsAre(0));
}

TEST_F(ShardAccumulatorTest, AShardCountsOnceInAStep) {
  Open();
  for (const int shard : {3, 1, 0, 2}) Give(7, shard);
  ASSERT_EQ(Apply(7, 3, 4, {1e6f}), absl::OkStatus());
  EXPECT_THAT(Values<int64_t>(dropped_), ElementsAre(1));
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(4));
  // Two shards that came one by one, from a worker that another one replaces.
  ASSERT_EQ(Apply(7, 2, 4, {kValues[2] + kValues[3]}), absl::OkStatus());
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(4));
  ASSERT_EQ(Apply(7, 2, 3, {1e6f}), absl::OkStatus());
  EXPECT_THAT(Values<int64_t>(dropped_), ElementsAre(2));
  Give(7, 4);
  EXPECT_EQ(Taken(), Mean());
  Give(7, 4);  // stale now
  EXPECT_THAT(Values<int64_t>(dropped_), ElementsAre(3));
}

TEST_F(ShardAccumulatorTest, AWaitNamesTheShardsThatAreMissing) {
  Open();
  SetStep(12);
  Give(12, 1);
  CancellationManager cancel;
  Background waiting([&] { return Do(take_, {.cancellation = &cancel}); });
  AwaitWaits(1);
  EXPECT_THAT(waits_->List()[0].what, HasSubstr("1 of 5 shards (missing: 0, 2, 3, 4) for accumulator"));
  EXPECT_THAT(waits_->List()[0].what, HasSubstr("at step 12"));
  cancel.StartCancel();
  EXPECT_EQ(waiting.Result().code(), absl::StatusCode::kCancelled);
}

TEST_F(ShardAccumulatorTest, WhatWasTakenAndNotAppliedCanBeTakenAgain) {
  Open();
  SetStep(3);
  for (int shard = 0; shard < kShards; ++shard) Give(3, shard);
  EXPECT_EQ(Taken(), Mean());
  SetStep(3);
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(kShards));
  Give(3, 2);  // of a worker that begins anew
  EXPECT_THAT(Values<int64_t>(dropped_), ElementsAre(1));
  EXPECT_EQ(Taken(), Mean());
  // Once the next step has begun it is forgotten; a step back then begins from nothing.
  Give(4, 0);
  SetStep(3);
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(0));
}

TEST_F(ShardAccumulatorTest, GradientsOfLaterStepsAreKeptForThem) {
  Open();
  SetStep(1);
  for (int shard = 0; shard < kShards; ++shard) Give(2, shard);
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(0));
  for (int shard = 0; shard < kShards; ++shard) Give(1, shard);
  EXPECT_EQ(Taken(), Mean());
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(kShards));
  EXPECT_EQ(Taken(), Mean());
}

TEST_F(ShardAccumulatorTest, MistakesAreTold) {
  Open();
  ExpectError(Apply(0, 0, 1, {1, 2}), absl::StatusCode::kInvalidArgument, "Shape mismatch: expected [1], got [2]");
  ExpectError(Apply(0, 1, 3, {1}), absl::StatusCode::kInvalidArgument, "shards 1 to 2 of 5 are no node of the tree");
  EXPECT_THAT(Values<int32_t>(count_), ElementsAre(0));
}

TEST_F(DataFlowTest, RowsOfShardsAreAddedUpAndDividedByTheNumberOfShards) {
  const Endpoint acc = {
      Handle("MillraceShardAccumulator",
             {{"dtype", DType::kFloat}, {"shape", PartialShape({10, 1})}, {"shards", 2}, {"sparse", true}}),
      0};
  const auto rows = [&](int shard, std::initializer_list<int64_t> indices, const std::vector<float>& values) {
    Tensor tensor(DType::kFloat, Shape({static_cast<int64_t>(values.size()), 1}));
    std::copy(values.begin(), values.end(), tensor.flat<float>().begin());
    return b_.AddNode(
        "MillraceShardAccumulatorApplyRows",
        {acc, b_.Const(Tensor::Scalar<int64_t>(0)), b_.Const(tensor), b_.Const(Tensor::Of<int64_t>(indices))},
        {{"first", shard}, {"last", shard + 1}});
  };
  // Row 4 twice in one shard, and in the other.
  Node* const first = rows(0, {4, 1, 4}, {1, 10, 2});
  Node* const second = rows(1, {7, 4}, {100, 1});
  Node* const outside = rows(1, {12}, {1});
  Node* const take = b_.AddNode("SparseAccumulatorTakeGradient", {acc, Int(2)}, {{"dtype", DType::kFloat}});
  Open();
  ExpectError(Do(outside), absl::StatusCode::kInvalidArgument, "exceeded");
  ASSERT_EQ(Do(second), absl::OkStatus());
  ASSERT_EQ(Do(first), absl::OkStatus());
  const auto taken = Get(take);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_THAT((*taken)[0].flat<int64_t>(), ElementsAre(1, 4, 7));
  EXPECT_THAT((*taken)[1].flat<float>(), ElementsAre(5, 2, 50));
  EXPECT_THAT((*taken)[2].flat<int64_t>(), ElementsAre(10, 1));
}

class StepSignalTest : public DataFlowTest {
 protected:
  StepSignalTest() {
    const Endpoint signal = {Handle("MillraceStepSignal", {}), 0};
    Node* const step = b_.AddNode("Placeholder", {}, {{"dtype", DType::kInt64}}, "step");
    set_ = b_.AddNode("MillraceStepSignalSet", {signal, {step, 0}});
    await_ = b_.AddNode("MillraceStepSignalAwait", {signal, {step, 0}});
    close_ = b_.AddNode("MillraceStepSignalClose", {signal}, {{"why", "worker 1 has ended"}});
  }
  Status Run(const Node* node, int64_t step) {
    std::vector<Tensor> none;
    return session_->Run({}, {{"step", Tensor::Scalar<int64_t>(step)}}, {}, {node->name()}, &none, nullptr);
  }
  Node *set_, *await_, *close_;
};

TEST_F(StepSignalTest, AWaitEndsWithTheNextStep) {
  Open();
  ASSERT_EQ(Run(set_, 5), absl::OkStatus());
  ASSERT_EQ(Run(await_, 4), absl::OkStatus());
  Background waiting([&] { return Run(await_, 5); });
  AwaitWaits(1);
  EXPECT_THAT(waits_->List()[0].what, HasSubstr("the update of step 5"));
  ASSERT_EQ(Run(set_, 5), absl::OkStatus());
  ASSERT_EQ(Run(set_, 6), absl::OkStatus());
  EXPECT_EQ(waiting.Result(), absl::OkStatus());
}

TEST_F(StepSignalTest, AStepBackIsTold) {
  Open();
  ASSERT_EQ(Run(set_, 5), absl::OkStatus());
  Background waiting([&] { return Run(await_, 5); });
  AwaitWaits(1);
  ASSERT_EQ(Run(set_, 2), absl::OkStatus());
  ExpectError(waiting.Result(), absl::StatusCode::kAborted, "went back to step 2, and this was step 5");
  ExpectError(Run(await_, 5), absl::StatusCode::kAborted, "went back to step 2");
}

TEST_F(StepSignalTest, AWaitEndsIfNoStepComesAnyMore) {
  Open();
  ASSERT_EQ(Run(set_, 5), absl::OkStatus());
  Background waiting([&] { return Run(await_, 5); });
  AwaitWaits(1);
  ASSERT_EQ(Run(close_, 0), absl::OkStatus());
  ExpectError(waiting.Result(), absl::StatusCode::kOutOfRange, "has ended at step 5: worker 1 has ended");
  ASSERT_EQ(Run(await_, 4), absl::OkStatus());
  ASSERT_EQ(Run(set_, 5), absl::OkStatus());  // a new training
  Background again([&] { return Run(await_, 5); });
  AwaitWaits(1);
  ASSERT_EQ(Run(set_, 6), absl::OkStatus());
  EXPECT_EQ(again.Result(), absl::OkStatus());
}

}  // namespace
}  // namespace millrace
