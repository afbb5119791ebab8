#include "millrace/collective/reduction.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace millrace::collective {
namespace {

template <typename T>
class ReductionOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, half, bfloat16, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                               uint32_t, uint64_t>;
TYPED_TEST_SUITE(ReductionOf, Types);

template <typename T>
T One(Reduction reduction, int a, int b) {
  const T left = static_cast<T>(a), right = static_cast<T>(b);
  T out{};
  Reduce(DTypeOf<T>(), reduction, &left, &right, &out, 1);
  return out;
}

TYPED_TEST(ReductionOf, CombinesTwoElements) {
  using T = TypeParam;
  EXPECT_EQ(static_cast<double>(One<T>(Reduction::kSum, 3, 4)), 7);
  EXPECT_EQ(static_cast<double>(One<T>(Reduction::kMean, 3, 4)), 7) << "divided at the end only";
  EXPECT_EQ(static_cast<double>(One<T>(Reduction::kProduct, 3, 4)), 12);
  EXPECT_EQ(static_cast<double>(One<T>(Reduction::kMin, 3, 4)), 3);
  EXPECT_EQ(static_cast<double>(One<T>(Reduction::kMax, 3, 4)), 4);
}

TYPED_TEST(ReductionOf, WorksInPlaceOnEitherSide) {
  using T = TypeParam;
  std::vector<T> left(100, static_cast<T>(5)), right(100, static_cast<T>(2));
  Reduce(DTypeOf<T>(), Reduction::kSum, left.data(), right.data(), right.data(), 99);
  EXPECT_EQ(static_cast<double>(right[0]), 7);
  EXPECT_EQ(static_cast<double>(right[98]), 7);
  EXPECT_EQ(static_cast<double>(right[99]), 2) << "beyond the count";
}

TYPED_TEST(ReductionOf, MeanDivides) {
  using T = TypeParam;
  T value = static_cast<T>(12);
  FinishReduction(DTypeOf<T>(), Reduction::kMean, &value, 1, 4);
  EXPECT_EQ(static_cast<double>(value), 3);
  FinishReduction(DTypeOf<T>(), Reduction::kSum, &value, 1, 4);
  EXPECT_EQ(static_cast<double>(value), 3);
}

TEST(Reduction, IntegersWrapAround) {
  EXPECT_EQ(One<int32_t>(Reduction::kSum, std::numeric_limits<int32_t>::max(), 1), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(One<int8_t>(Reduction::kProduct, 100, 2), static_cast<int8_t>(200));
}

TEST(Reduction, IntegerMeanIsRoundedTowardsZero) {
  int32_t value = -7;
  FinishReduction(DType::kInt32, Reduction::kMean, &value, 1, 2);
  EXPECT_EQ(value, -3);
}

TEST(Reduction, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), one = 1;
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax, Reduction::kSum}) {
    float out = 0;
    Reduce(DType::kFloat, reduction, &nan, &one, &out, 1);
    EXPECT_TRUE(std::isnan(out)) << ReductionName(reduction);
    Reduce(DType::kFloat, reduction, &one, &nan, &out, 1);
    EXPECT_TRUE(std::isnan(out)) << ReductionName(reduction);
  }
}

TEST(Reduction, ComplexNumbersAreAddedAndHaveNoOrder) {
  const std::complex<float> a(1, 2), b(3, 4);
  std::complex<float> out;
  Reduce(DType::kComplex64, Reduction::kSum, &a, &b, &out, 1);
  EXPECT_EQ(out, std::complex<float>(4, 6));
  EXPECT_TRUE(CheckReducible(DType::kComplex64, Reduction::kMean).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckReducible(DType::kComplex64, Reduction::kMax)));
}

TEST(Reduction, TypesWithoutArithmeticAreRefused) {
  for (const DType dtype : {DType::kString, DType::kBool, DType::kResource, DType::kInvalid, DType::kQInt8})
    EXPECT_TRUE(absl::IsInvalidArgument(CheckReducible(dtype, Reduction::kSum))) << dtype;
}

TEST(AlignedMessage, JoinsPiecesAndCopiesMisalignedOnes) {
  net::Bytes pieces = net::Bytes::Of("abc");
  pieces.Append(net::Bytes::Of("defg"));
  const AlignedMessage joined(pieces);
  EXPECT_EQ(std::string(joined.data(), 7), "abcdefg");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(joined.data()) % 16, 0);

  alignas(16) static const char kText[] = "0123456789abcdefX";
  net::Bytes aligned, misaligned;
  aligned.Append({kText, 16}, nullptr);
  misaligned.Append({kText + 1, 16}, nullptr);
  EXPECT_EQ(AlignedMessage(aligned).data(), kText) << "copied for nothing";
  const AlignedMessage copy(misaligned);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copy.data()) % 16, 0);
  EXPECT_EQ(std::string(copy.data(), 16), "123456789abcdefX");
}

}  // namespace
}  // namespace millrace::collective
