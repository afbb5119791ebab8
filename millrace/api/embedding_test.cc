#include "millrace/api/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// Row i of the table is (i, 10 i).
class SparseEmbeddingTest : public ::testing::TestWithParam<int> {
 protected:
  PartitionedVar Table(int64_t rows = 7) {
    Tensor values(DType::kFloat, Shape({rows, 2}));
    for (int64_t i = 0; i < rows; ++i) {
      values.data<float>()[2 * i] = static_cast<float>(i);
      values.data<float>()[2 * i + 1] = 10 * static_cast<float>(i);
    }
    return PartitionedVar(root_, "table", Shape({rows, 2}), init::Constant(values), FixedSizePartitioner(GetParam()));
  }
  SparseOutput Sparse(const Tensor& indices, const Tensor& values, const Tensor& shape) {
    return {ops::Const(root_, indices), ops::Const(root_, values), ops::Const(root_, shape)};
  }
  // Examples with the ids {1, 6}, none, {1, -1}.
  SparseOutput Ids() {
    return Sparse(Tensor::Of<int64_t>({4, 2}, {0, 0, 0, 1, 2, 0, 2, 3}), Tensor::Of<int64_t>({1, 6, 1, -1}),
                  Tensor::Of<int64_t>({3, 4}));
  }
  SparseOutput Weights() {
    return Sparse(Tensor::Of<int64_t>({4, 2}, {0, 0, 0, 1, 2, 0, 2, 3}), Tensor::Of<float>({3, 4, -2, 1}),
                  Tensor::Of<int64_t>({3, 4}));
  }
  void ExpectRows(const Output& rows, const std::vector<float>& expected) {
    ASSERT_EQ(root_.status(), absl::OkStatus());
    EXPECT_THAT(Floats(RunOnce(root_, {rows})[0]), Pointwise(FloatNear(1e-5f), expected));
  }

  const Scope root_ = Scope::NewRoot();
};

TEST_P(SparseEmbeddingTest, RowsAreCombined) {
  const PartitionedVar table = Table();
  const auto combined = [&](Combiner combiner, const SparseOutput& weights) {
    return SafeEmbeddingLookupSparse(root_, table, Ids(), weights, {.combiner = combiner});
  };
  ExpectRows(combined(Combiner::kSum, {}), {7, 70, 0, 0, 1, 10});
  ExpectRows(combined(Combiner::kMean, {}), {3.5, 35, 0, 0, 1, 10});
  ExpectRows(combined(Combiner::kSqrtN, {}), {4.949747f, 49.49747f, 0, 0, 1, 10});
  // A weight that is not positive counts in a sum, and drops its id in a mean.
  ExpectRows(combined(Combiner::kSum, Weights()), {27, 270, 0, 0, -2, -20});
  ExpectRows(combined(Combiner::kMean, Weights()), {27.f / 7, 270.f / 7, 0, 0, 0, 0});
  ExpectRows(combined(Combiner::kSqrtN, Weights()), {27.f / 5, 54, 0, 0, 0, 0});
}

TEST_P(SparseEmbeddingTest, AnExampleWithoutIdsMayHaveARowOfItsOwn) {
  ExpectRows(SafeEmbeddingLookupSparse(root_, Table(), Ids(), {}, {.combiner = Combiner::kSum, .default_id = 2}),
             {7, 70, 2, 20, 1, 10});
  ExpectRows(SafeEmbeddingLookupSparse(root_, Table(), Ids(), Weights(), {.default_id = 2}),
             {27.f / 7, 270.f / 7, 2, 20, 2, 20});
}

TEST_P(SparseEmbeddingTest, TheLastDimensionIsCombined) {
  const SparseOutput ids = Sparse(Tensor::Of<int64_t>({3, 3}, {0, 1, 0, 0, 1, 2, 1, 0, 1}),
                                  Tensor::Of<int64_t>({1, 3, 5}), Tensor::Of<int64_t>({2, 2, 3}));
  const Output rows = SafeEmbeddingLookupSparse(root_, Table(), ids);
  ExpectRows(rows, {0, 0, 2, 20, 5, 50, 0, 0});
  EXPECT_EQ(RunOnce(root_, {rows})[0].shape(), (Shape{2, 2, 2}));
}

TEST_P(SparseEmbeddingTest, LongRowsAreScaledDown) {
  const PartitionedVar table = Table();
  const float norm = std::sqrt(101.0f);
  ExpectRows(EmbeddingLookupMaxNorm(root_, table, {0, 1, 5}, 2 * norm), {0, 0, 1, 10, 2, 20});
  const SparseOutput ids =
      Sparse(Tensor::Of<int64_t>({2, 2}, {0, 0, 0, 1}), Tensor::Of<int64_t>({1, 5}), Tensor::Of<int64_t>({1, 2}));
  ExpectRows(EmbeddingLookupSparse(root_, table, ids, {}, {.max_norm = 2 * norm}), {1.5, 15});
}

TEST_P(SparseEmbeddingTest, BothStrategiesFindTheSameRowsOfTheirOwnLayouts) {
  const PartitionedVar table = Table(6);
  const SparseOutput ids = Sparse(Tensor::Of<int64_t>({3, 2}, {0, 0, 1, 0, 2, 0}), Tensor::Of<int64_t>({0, 3, 5}),
                                  Tensor::Of<int64_t>({3, 1}));
  ExpectRows(EmbeddingLookupSparse(root_, table, ids), {0, 0, 3, 30, 5, 50});
  // With n parts of 6 / n rows each, id i is row i / n of part i % n.
  std::vector<float> expected;
  for (const int id : {0, 3, 5}) {
    const int row = id % GetParam() * (6 / GetParam()) + id / GetParam();
    expected.insert(expected.end(), {static_cast<float>(row), 10 * static_cast<float>(row)});
  }
  ExpectRows(EmbeddingLookupSparse(root_, table.parts(), ids), expected);
}

TEST_P(SparseEmbeddingTest, GradientsAreOfTheRowsThatWereLookedUp) {
  const PartitionedVar table = Table();
  const Output rows = SafeEmbeddingLookupSparse(root_, table, Ids(), Weights(), {.combiner = Combiner::kSum});
  const Output loss = ops::Sum(root_, rows, {0, 1});
  optimizers::GradientDescent sgd({.learning_rate = 1});
  const Operation train = sgd.Minimize(root_, loss);
  const Operation init = GlobalVariablesInitializer(root_);
  const Output value = table.Value(root_);
  ClientSession session = ClientSession::Create(root_).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  ASSERT_EQ(session.Run(train), absl::OkStatus());
  // Row 1 has the weights 3 and -2, row 6 has 4.
  EXPECT_THAT(Floats(session.Run({value}).value()[0]), ElementsAre(0, 0, 0, 9, 2, 20, 3, 30, 4, 40, 5, 50, 2, 56));
}

INSTANTIATE_TEST_SUITE_P(Parts, SparseEmbeddingTest, ::testing::Values(1, 3));

TEST(EmbeddingErrorsTest, WhatIsNoTableIsNamed) {
  const Scope root = Scope::NewRoot();
  const PartitionedVar columns(root, "columns", {4, 4}, init::Zeros(), FixedSizePartitioner(2, 1));
  const SparseOutput ids = {ops::Const(root, Tensor::Of<int64_t>({1, 2}, {0, 0})),
                            ops::Const(root, Tensor::Of<int64_t>({1})), ops::Const(root, Tensor::Of<int64_t>({1, 1}))};
  SafeEmbeddingLookupSparse(root, columns, ids);
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("columns is cut along dimension 1"));
  const Scope other = Scope::NewRoot();
  EmbeddingLookupSparse(other, {Var(other, "vector", {4}, init::Zeros())}, ids);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("vector has shape [4]; a table has rows and columns"));
  EXPECT_THAT(std::string(ParseCombiner("max").status().message()), HasSubstr("'max'"));
}

TEST(LookupTableTest, KeysAreTheirPlacesInTheVocabulary) {
  const Scope root = Scope::NewRoot();
  const IdTable words = IndexTableFromTensor(root, Tensor::Of<std::string>({"a", "b"}), {.default_value = 9});
  const IdTable numbers = IndexTableFromTensor(root, Tensor::Of<int64_t>({70, 60}), {.num_oov_buckets = 3});
  const Output ids = words.Lookup(root, Tensor::Of<std::string>({"b", "?", "a"}));
  const Output places = numbers.Lookup(root, Tensor::Of<int32_t>({60, 5, 70}));
  const Operation init = TablesInitializer(root);
  ClientSession session = ClientSession::Create(root).value();
  EXPECT_THAT(std::string(session.Run({ids}).status().message()), HasSubstr("not initialized"));
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  const Tensors found = session.Run({ids, places}).value();
  EXPECT_THAT(found[0].flat<int64_t>(), ElementsAre(1, 9, 0));
  EXPECT_EQ(found[1].data<int64_t>()[0], 1);
  EXPECT_THAT(found[1].data<int64_t>()[1], ::testing::AllOf(::testing::Ge(2), ::testing::Le(4)));
  IndexTableFromTensor(root, Tensor::Of<std::string>({"a", "a"}));
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("the vocabulary has 'a' twice"));
}

TEST(OptimizerByPrefixTest, EachVariableHasItsOptimizer) {
  const Scope root = Scope::NewRoot();
  const Var slow(root, "slow/w", Input(1.0)), fast(root, "fast/w", Input(1.0));
  const auto rate = [](double r) {
    return std::make_shared<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = r});
  };
  const auto both = Optimizer::ByPrefix(
      {{"slow/", rate(0.1)},
       {"fast/", std::make_shared<optimizers::Momentum>(optimizers::MomentumOptions{.learning_rate = 1})}});
  const Operation train = both->Minimize(root, Output(slow) + Output(fast), {.global_step = GlobalStep(root)});
  const Operation init = GlobalVariablesInitializer(root);
  ClientSession session = ClientSession::Create(root).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  ASSERT_EQ(session.Run(train), absl::OkStatus());
  const Tensors values = session.Run({slow, fast, GlobalStep(root)}).value();
  EXPECT_FLOAT_EQ(values[0].scalar<float>(), 0.9f);
  EXPECT_FLOAT_EQ(values[1].scalar<float>(), 0);
  EXPECT_EQ(values[2].scalar<int64_t>(), 1);
  EXPECT_EQ(GlobalVariables(root)[3].var_name(), "fast/w/Momentum");
  Optimizer::ByPrefix({{"slow/", rate(0.1)}})->Minimize(root, Output(slow) + Output(fast));
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("fast/w has none of the prefixes"));
}

}  // namespace
}  // namespace millrace
