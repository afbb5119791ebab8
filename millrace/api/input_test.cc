#include "millrace/api/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Literal, BracesGiveShapeAndNumbersTakeTheTypeAskedFor) {
  StatusOr<Tensor> t = Literal({{1, 2.5}, {3, 4}}).As(DType::kDouble);
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_EQ(t->shape(), Shape({2, 2}));
  EXPECT_THAT(t->flat<double>(), ElementsAre(1, 2.5, 3, 4));
  EXPECT_EQ(Literal(1).AsUsual()->dtype(), DType::kInt32);
  EXPECT_EQ(Literal(int64_t{1}).AsUsual()->dtype(), DType::kInt64);
  EXPECT_EQ(Literal(1.0).AsUsual()->dtype(), DType::kFloat);
  EXPECT_EQ(Literal({1, 2.0}).AsUsual()->dtype(), DType::kFloat);
  EXPECT_EQ(Literal(true).AsUsual()->dtype(), DType::kBool);
  EXPECT_EQ(Literal("text").AsUsual()->scalar<std::string>(), "text");
  EXPECT_EQ(Literal({"a", "b"}).AsUsual()->dim(0), 2);
  EXPECT_EQ(Literal(std::vector<float>{1, 2}).usual_type(), DType::kFloat);
  EXPECT_FALSE(Literal(std::vector<int64_t>{1, 2}).adapts());
}

TEST(Input, NumbersTakeTheTypeOfTheTensorsBesideThem) {
  const Scope s = Scope::NewRoot();
  for (DType type : {DType::kFloat, DType::kDouble, DType::kInt64, DType::kComplex64}) {
    const Output x = ops::Placeholder(s, type);
    EXPECT_EQ(ops::Mul(s, x, 2).dtype(), type);
    EXPECT_EQ(ops::Mul(s, 2, x).dtype(), type);
    EXPECT_EQ((3 - x).dtype(), type);
  }
  EXPECT_EQ(ops::Sqrt(s, 4).dtype(), DType::kFloat);  // integers have no root
  EXPECT_EQ(ops::AddV2(s, 1, 2).dtype(), DType::kInt32);
  EXPECT_EQ(ops::AddV2(s, 1, 2.5).dtype(), DType::kFloat);
  EXPECT_EQ(ops::AddV2(s, 2.5, 1).dtype(), DType::kFloat);
  EXPECT_TRUE(s.ok()) << s.status();
}

TEST(Input, ListsTakeOutputsAndConstants) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {1.0, 2.0});
  const Tensors result = RunOnce(s, {ops::ConcatV2(s, {x, {3, 4}, x}, 0)});
  ASSERT_TRUE(s.ok()) << s.status();
  ASSERT_EQ(result.size(), 1);
  EXPECT_THAT(Floats(result[0]), ElementsAre(1, 2, 3, 4, 1, 2));
}

TEST(Operators, ComputeElementByElement) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {1.0, -2.0}), y = ops::Const(s, {4.0, 5.0});
  const Output i = ops::Const(s, {7, -7});
  const Tensors r = RunOnce(s, {x + y, x - y, x * y, y / x, -x, 1 - x, x + 1, 2 / x, x < y, x >= 1, i / 2});
  ASSERT_EQ(r.size(), 11);
  EXPECT_THAT(Floats(r[0]), ElementsAre(5, 3));
  EXPECT_THAT(Floats(r[1]), ElementsAre(-3, -7));
  EXPECT_THAT(Floats(r[2]), ElementsAre(4, -10));
  EXPECT_THAT(Floats(r[3]), ElementsAre(4, -2.5));
  EXPECT_THAT(Floats(r[4]), ElementsAre(-1, 2));
  EXPECT_THAT(Floats(r[5]), ElementsAre(0, 3));
  EXPECT_THAT(Floats(r[6]), ElementsAre(2, -1));
  EXPECT_THAT(Floats(r[7]), ElementsAre(2, -1));
  EXPECT_THAT(r[8].flat<bool>(), ElementsAre(true, true));
  EXPECT_THAT(r[9].flat<bool>(), ElementsAre(true, false));
  EXPECT_THAT(r[10].flat<int32_t>(), ElementsAre(3, -3));
}

TEST(Operators, OnNothingAreNothing) {
  EXPECT_TRUE((Output() + Output()).empty());
  EXPECT_TRUE((-Output()).empty());
  const Scope s = Scope::NewRoot();
  EXPECT_TRUE((Output() * ops::Const(s, 1)).empty());
  EXPECT_THAT(std::string(s.status().message()), HasSubstr("empty"));
}

TEST(Builders, SplitListsAndSeveralOutputs) {
  const Scope s = Scope::NewRoot();
  const std::vector<Output> parts = ops::Split(s, 0, {1.0, 2.0, 3.0, 4.0}, 2);
  ASSERT_EQ(parts.size(), 2);
  const ops::UniqueOutputs unique = ops::Unique(s, {5, 6, 5});
  const ops::SwitchOutputs branches = ops::Switch(s, 1.0, true);
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {parts[1], unique.y, unique.idx, branches.output_true});
  ASSERT_EQ(r.size(), 4);
  EXPECT_THAT(Floats(r[0]), ElementsAre(3, 4));
  EXPECT_THAT(r[1].flat<int32_t>(), ElementsAre(5, 6));
  EXPECT_THAT(r[2].flat<int32_t>(), ElementsAre(0, 1, 0));
  EXPECT_EQ(r[3].scalar<float>(), 1);
}

}  // namespace
}  // namespace millrace
