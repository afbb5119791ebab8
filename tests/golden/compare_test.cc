#include "tests/golden/compare.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::golden {
namespace {

using ::testing::HasSubstr;

TEST(Compare, AcceptsWhatIsWithinTheTolerance) {
  EXPECT_TRUE(Compare(Tensor::Of<float>({1, 100}), Tensor::Of<float>({1.05f, 101}), 0.01, 0.05).ok());
}

TEST(Compare, NamesTheFirstElementThatIsOutside) {
  const Status status = Compare(Tensor::Of<float>({1, 2, 3}), Tensor::Of<float>({1, 2.5f, 4}), 0, 0.1);
  EXPECT_THAT(status.message(), HasSubstr("2 of 3 elements differ, first at 1"));
}

TEST(Compare, WithoutToleranceTellsZeroFromMinusZero) {
  EXPECT_FALSE(Compare(Tensor::Scalar(0.0f), Tensor::Scalar(-0.0f), 0, 0).ok());
  EXPECT_TRUE(Compare(Tensor::Scalar(0.0f), Tensor::Scalar(-0.0f), 1e-6, 1e-6).ok());
}

TEST(Compare, NanEqualsNanAndNothingElse) {
  const float nan = std::nanf("");
  EXPECT_TRUE(Compare(Tensor::Scalar(nan), Tensor::Scalar(nan), 0, 0).ok());
  EXPECT_TRUE(Compare(Tensor::Scalar(nan), Tensor::Scalar(-nan), 0.1, 0.1).ok());
  EXPECT_FALSE(Compare(Tensor::Scalar(nan), Tensor::Scalar(1.0f), 0.1, 0.1).ok());
  EXPECT_FALSE(Compare(Tensor::Scalar(1.0f), Tensor::Scalar(nan), 0.1, 0.1).ok());
}

TEST(Compare, InfinityIsNotWithinAnyToleranceOfAFiniteNumber) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(Compare(Tensor::Scalar(inf), Tensor::Scalar(inf), 0.1, 0.1).ok());
  EXPECT_FALSE(Compare(Tensor::Scalar(inf), Tensor::Scalar(-inf), 0.1, 0.1).ok());
  EXPECT_FALSE(Compare(Tensor::Scalar(inf), Tensor::Scalar(1.0), 0.1, 0.1).ok());
}

TEST(Compare, IntegersAndStringsAgreeExactlyWhateverTheTolerance) {
  EXPECT_FALSE(Compare(Tensor::Scalar<int32_t>(100), Tensor::Scalar<int32_t>(101), 1, 1).ok());
  EXPECT_FALSE(Compare(Tensor::Scalar("a"), Tensor::Scalar("b"), 1, 1).ok());
  EXPECT_TRUE(Compare(Tensor::Scalar("a"), Tensor::Scalar("a"), 0, 0).ok());
}

TEST(Compare, DtypeAndShapeMustBeTheSame) {
  EXPECT_THAT(Compare(Tensor::Scalar(1.0f), Tensor::Scalar(1.0), 1, 1).message(), HasSubstr("dtype"));
  EXPECT_THAT(Compare(Tensor::Scalar(1.0f), Tensor::Of<float>({1}), 1, 1).message(), HasSubstr("shape"));
}

}  // namespace
}  // namespace millrace::golden
