#include "millrace/api/partitioned_variable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PartitionerTest, CountsAreTensorFlows) {
  const Shape shape({10, 4});
  EXPECT_THAT(FixedSizePartitioner(3)(shape, DType::kFloat), ElementsAre(3, 1));
  EXPECT_THAT(FixedSizePartitioner(30)(shape, DType::kFloat), ElementsAre(10, 1));
  EXPECT_THAT(FixedSizePartitioner(3, 1)(shape, DType::kFloat), ElementsAre(1, 3));
  // A row has 16 bytes.
  EXPECT_THAT(VariableAxisSizePartitioner({.max_part_bytes = 50})(shape, DType::kFloat), ElementsAre(4, 1));
  EXPECT_THAT(VariableAxisSizePartitioner({.max_part_bytes = 5})(shape, DType::kFloat), ElementsAre(10, 1));
  EXPECT_THAT(VariableAxisSizePartitioner({.max_part_bytes = 5, .max_parts = 2})(shape, DType::kFloat),
              ElementsAre(2, 1));
  EXPECT_THAT(VariableAxisSizePartitioner({.max_part_bytes = 64})(shape, DType::kString), ElementsAre(10, 1));
  EXPECT_THAT(MinMaxPartitioner({.max_parts = 8, .min_part_bytes = 32})(shape, DType::kFloat), ElementsAre(5, 1));
  EXPECT_THAT(MinMaxPartitioner({.max_parts = 3, .min_part_bytes = 32})(shape, DType::kFloat), ElementsAre(3, 1));
  EXPECT_THAT(MinMaxPartitioner({.max_parts = 3})(shape, DType::kFloat), ElementsAre(1, 1));
}

TEST(PartitionedVarTest, PartsAreVariablesAndTogetherTheWhole) {
  Scope scope = Scope::NewRoot();
  std::vector<float> numbers;
  for (int i = 0; i < 14; ++i) numbers.push_back(static_cast<float>(i));
  const Tensor all = Tensor::FromSpan<float>(numbers, Shape({7, 2}));
  const PartitionedVar w(scope.SubScope("model"), "w", {7, 2}, init::Constant(all), FixedSizePartitioner(3));
  ASSERT_EQ(w.parts().size(), 3);
  EXPECT_EQ(w.parts()[0].var_name(), "model/w/part_0");
  EXPECT_EQ(w.parts()[0].shape().ToString(), "[3,2]");
  EXPECT_EQ(w.parts()[2].shape().ToString(), "[2,2]");
  EXPECT_EQ(SliceOf(w.parts()[1])->Spec(), "7 2 3,2:0,2");
  EXPECT_EQ(GlobalVariables(scope).size(), 3);
  EXPECT_EQ(Floats(RunOnce(scope, {w.Value(scope)})[0]), numbers);
  const PartitionedVar columns(scope, "columns", {7, 2}, init::Constant(all), FixedSizePartitioner(2, 1));
  EXPECT_EQ(Floats(RunOnce(scope, {columns.Value(scope)})[0]), numbers);
}

TEST(PartitionedVarTest, PartsAreScaledAsTheWholeIs) {
  Scope scope = Scope::NewRoot();
  scope.SetRandomSeed(1);
  const PartitionedVar w(scope, "w", {400, 100}, init::GlorotUniform(), FixedSizePartitioner(100));
  const std::vector<float> values = Floats(RunOnce(scope, {w.Value(scope)})[0]);
  const float limit = std::sqrt(6.0f / 500);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), limit);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), 0.99f * limit);
}

TEST(PartitionedVarTest, APartitionerThatMakesNoSenseIsAnError) {
  const auto error = [](const Shape& shape, const Partitioner& partitioner) {
    Scope scope = Scope::NewRoot();
    EXPECT_TRUE(PartitionedVar(scope, "w", shape, init::Zeros(), partitioner).empty());
    return std::string(scope.status().message());
  };
  EXPECT_THAT(error({4, 4},
                    [](const Shape&, DType) {
                      return std::vector<int64_t>{2, 2};
                    }),
              HasSubstr("cuts dimensions 0 and 1; only one can be cut"));
  EXPECT_THAT(error({4}, [](const Shape&, DType) { return std::vector<int64_t>{5}; }),
              HasSubstr("5 parts for dimension 0, which is 4 long"));
  EXPECT_THAT(error({4}, FixedSizePartitioner(2, 1)), HasSubstr("cuts 2 dimensions, and there are 1"));
  EXPECT_THAT(error({4}, FixedSizePartitioner(0)), HasSubstr("gives 0 parts"));
  EXPECT_THAT(error({4}, VariableAxisSizePartitioner({})), HasSubstr("gives 0 parts"));
}

TEST(PartitionedVarTest, OptimizersChangeThePartsAndKeepTheirSlotsAsSlices) {
  Scope scope = Scope::NewRoot();
  const PartitionedVar w(scope, "w", {3, 1}, init::Ones(), FixedSizePartitioner(2));
  const Output loss = ops::Sum(scope, ops::Square(scope, w.Value(scope)), {0, 1});
  const Operation train = optimizers::Momentum({.learning_rate = 0.25, .momentum = 0.5}).Minimize(scope, loss);
  ASSERT_TRUE(scope.ok()) << scope.status();
  const Operation init = GlobalVariablesInitializer(scope);
  const Output value = w.Value(scope);
  ClientSession session = ClientSession::Create(scope).value();
  ASSERT_TRUE(session.Run(init).ok());
  ASSERT_TRUE(session.Run(train).ok());
  EXPECT_THAT(Floats(session.Run({value}).value()[0]), testing::Each(0.5f));
  std::vector<std::string> slots;
  for (const Var& variable : GlobalVariables(scope)) {
    if (!variable.trainable())
      slots.push_back(
          absl::StrCat(variable.var_name(), " is ", SliceOf(variable)->full_name, " ", SliceOf(variable)->Spec()));
  }
  EXPECT_THAT(
      slots, ElementsAre("w/part_0/Momentum is w/Momentum 3 1 0,2:0,1", "w/part_1/Momentum is w/Momentum 3 1 2,1:0,1"));
}

class EmbeddingLookupTest : public testing::TestWithParam<DType> {};

TEST_P(EmbeddingLookupTest, RowsOfAllPartsAreFoundByEitherStrategy) {
  for (const int parts : {1, 2, 3, 5, 7}) {
    Scope scope = Scope::NewRoot();
    std::vector<float> numbers;
    for (int i = 0; i < 7; ++i) numbers.insert(numbers.end(), {static_cast<float>(i), -static_cast<float>(i)});
    const PartitionedVar table(scope, "table", {7, 2}, init::Constant(Tensor::FromSpan<float>(numbers, Shape({7, 2}))),
                               FixedSizePartitioner(parts));
    const Output ids = ops::Cast(scope, {{6, 0, 3}, {3, 5, 1}}, GetParam());
    const Output div = EmbeddingLookup(scope, table, ids),
                 mod = EmbeddingLookup(scope, table, ids, LookupStrategy::kMod);
    // Where each row is by the rule of mod: row id / n of part id % n, and parts are runs.
    std::vector<float> expected;
    for (const int id : {6, 0, 3, 3, 5, 1}) {
      const int part = id % parts;
      const int begin = part * (7 / parts) + std::min(part, 7 % parts);
      expected.insert(expected.end(),
                      {static_cast<float>(begin + id / parts), -static_cast<float>(begin + id / parts)});
    }
    const Tensors found = RunOnce(scope, {div, mod});
    ASSERT_EQ(found.size(), 2) << scope.status();
    EXPECT_EQ(found[0].shape(), Shape({2, 3, 2}));
    EXPECT_THAT(Floats(found[0]), ElementsAre(6, -6, 0, 0, 3, -3, 3, -3, 5, -5, 1, -1)) << parts;
    EXPECT_EQ(Floats(found[1]), expected) << parts;
  }
}
INSTANTIATE_TEST_SUITE_P(Ids, EmbeddingLookupTest, testing::Values(DType::kInt32, DType::kInt64));

TEST(EmbeddingTest, TrainingChangesTheRowsThatWereLookedUp) {
  Scope scope = Scope::NewRoot();
  const PartitionedVar table(scope, "table", {5, 1}, init::Zeros(), FixedSizePartitioner(2));
  const Output rows = EmbeddingLookup(scope, table, {4, 1, 4});
  const Operation train =
      optimizers::GradientDescent({.learning_rate = 1}).Minimize(scope, ops::Sum(scope, rows, {0, 1}));
  ASSERT_TRUE(scope.ok()) << scope.status();
  const Operation init = GlobalVariablesInitializer(scope);
  const Output value = table.Value(scope);
  ClientSession session = ClientSession::Create(scope).value();
  ASSERT_TRUE(session.Run(init).ok());
  ASSERT_EQ(session.Run(train), absl::OkStatus());
  EXPECT_THAT(Floats(session.Run({value}).value()[0]), ElementsAre(0, -1, 0, 0, -2));
}

TEST(EmbeddingTest, IdsOutsideAndTablesCutOtherwiseAreErrors) {
  Scope scope = Scope::NewRoot();
  const PartitionedVar table(scope, "table", {5, 2}, init::Zeros(), FixedSizePartitioner(2));
  const Output outside = EmbeddingLookup(scope, table, {5}), below = EmbeddingLookup(scope, table, {-1});
  const Operation init = GlobalVariablesInitializer(scope);
  ClientSession session = ClientSession::Create(scope).value();
  ASSERT_TRUE(session.Run(init).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(session.Run({outside}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(session.Run({below}).status()));
  const PartitionedVar columns(scope, "columns", {5, 2}, init::Zeros(), FixedSizePartitioner(2, 1));
  EmbeddingLookup(scope, columns, {1});
  EXPECT_THAT(scope.status().message(), HasSubstr("columns is cut along dimension 1"));
}

}  // namespace
}  // namespace millrace
