#include "millrace/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/narrow_types.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/tensor.h"

namespace millrace {
namespace {

TEST(DTypeTest, EveryNameParsesBackToItsType) {
  for (int i = 1; i <= 32; ++i) {
    const DType t = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(DTypeName(t)).value(), t) << DTypeName(t);
    EXPECT_EQ(ParseDType(DTypeName(RefType(t))).value(), RefType(t));
  }
  EXPECT_EQ(DTypeName(DType::kFloat), "float");
  EXPECT_EQ(DTypeName(RefType(DType::kInt32)), "int32_ref");
  EXPECT_EQ(ParseDType("DT_BFLOAT16").value(), DType::kBFloat16);
  EXPECT_EQ(ParseDType("DT_FLOAT_REF").value(), RefType(DType::kFloat));
}

TEST(DTypeTest, UnknownNamesAndNumbersAreTold) {
  EXPECT_EQ(ParseDType("florat").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseDType("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DTypeName(static_cast<DType>(77)), "dtype(77)");
  EXPECT_EQ(DTypeName(static_cast<DType>(-3)), "dtype(-3)");
  for (int i : {-1, 0, 33, 77, 100, 133, 1000}) {
    EXPECT_FALSE(IsKnown(static_cast<DType>(i))) << i;
    EXPECT_EQ(SizeOf(static_cast<DType>(i)), 0u) << i;
  }
}

TEST(DTypeTest, NumbersFarBeyondTheTypesAreUnknown) {
  for (int number : {34, 99, 100, 201, 1101, 0x7effffff, -1}) {
    EXPECT_FALSE(IsKnown(static_cast<DType>(number))) << number;
    EXPECT_EQ(SizeOf(static_cast<DType>(number)), 0u) << number;
  }
}

TEST(DTypeTest, SizesAreThoseOfTheCppTypes) {
  const auto check = [](auto tag) {
    using T = typename decltype(tag)::type;
    EXPECT_EQ(SizeOf(DTypeOf<T>()), sizeof(T)) << DTypeOf<T>();
  };
  for (int i = 1; i <= 23; ++i) DispatchType(PlainTypes(), static_cast<DType>(i), check);
  EXPECT_EQ(SizeOf(DType::kString), sizeof(std::string));
  EXPECT_EQ(SizeOf(RefType(DType::kFloat)), sizeof(ResourceHandle));
  EXPECT_FALSE(IsPlain(RefType(DType::kFloat)));
}

TEST(NarrowTypesTest, EveryBitPatternOfAFloat8SurvivesTheWayThroughFloat) {
  for (int number = 24; number <= 28; ++number) {
    const auto t = static_cast<DType>(number);
    for (int bits = 0; bits < 256; ++bits) {
      const auto from = static_cast<uint8_t>(bits);
      float wide = 0;
      uint8_t back = 0;
      WidenElements(t, &from, &wide, 1);
      NarrowElements(t, &wide, &back, 1);
      if (std::isnan(wide)) continue;
      ASSERT_EQ(back, bits) << t << " " << wide;
    }
  }
}

uint8_t Narrowed(DType t, float x) {
  uint8_t bits = 0;
  NarrowElements(t, &x, &bits, 1);
  return bits;
}

TEST(NarrowTypesTest, Float8RoundsToNearestEvenAndOverflowsAsItsFormatSays) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Narrowed(kFloat8E5M2, 1.0f), 0x3c);
  EXPECT_EQ(Narrowed(kFloat8E5M2, 1.125f), 0x3c);     // a tie goes to even
  EXPECT_EQ(Narrowed(kFloat8E5M2, 1.375f), 0x3e);     // the other way
  EXPECT_EQ(Narrowed(kFloat8E5M2, -57344.0f), 0xfb);  // the largest
  EXPECT_EQ(Narrowed(kFloat8E5M2, 61440.0f), 0x7c);
  EXPECT_EQ(Narrowed(kFloat8E5M2, -infinity), 0xfc);
  EXPECT_EQ(Narrowed(kFloat8E5M2, std::ldexp(1.0f, -16)), 0x01);  // the least
  EXPECT_EQ(Narrowed(kFloat8E4M3FN, 448.0f), 0x7e);
  EXPECT_EQ(Narrowed(kFloat8E4M3FN, 1e30f), 0x7f);
  EXPECT_EQ(Narrowed(kFloat8E4M3FNUZ, -0.0f), 0x00);
  EXPECT_EQ(Narrowed(kFloat8E4M3FNUZ, infinity), 0x80);
}

TEST(NarrowTypesTest, TensorsAreShownByTheirValues) {
  Tensor t(kFloat8E5M2, Shape({3}));
  for (int i = 0; i < 3; ++i) t.raw<uint8_t>()[i] = Narrowed(kFloat8E5M2, 0.5f + static_cast<float>(i));
  EXPECT_EQ(t.DebugString(3), "float8_e5m2[3] [0.5 1.5 2.5]");
}

TEST(NarrowTypesTest, OfIntegersTheLowBitsRemain) {
  const int8_t wide[] = {7, 8, -8, -1, 17};
  uint8_t bits[5];
  NarrowElements(kInt4, wide, bits, 5);
  EXPECT_EQ(std::vector<int>({7, -8, -8, -1, 1}),
            std::vector<int>(reinterpret_cast<int8_t*>(bits), reinterpret_cast<int8_t*>(bits) + 5));
  NarrowElements(kUInt2, wide, bits, 5);
  EXPECT_EQ(std::vector<int>({3, 0, 0, 3, 1}), std::vector<int>(bits, bits + 5));
}

TEST(HalfTest, RoundsToNearestEvenAndKeepsSpecials) {
  EXPECT_EQ(half(1.0f).bits, 0x3c00);
  EXPECT_EQ(half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(half(65520.0f).bits, 0x7c00);            // rounds up to infinity
  EXPECT_EQ(half(1.0f + 1.0f / 2048).bits, 0x3c00);  // a tie goes to even
  EXPECT_EQ(half(1.0f + 3.0f / 2048).bits, 0x3c02);
  EXPECT_EQ(half(std::ldexp(1.0f, -24)).bits, 0x0001);
  EXPECT_TRUE(std::isnan(static_cast<float>(half(std::nanf("")))));
  EXPECT_EQ(bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bfloat16(1.0f + 1.0f / 256).bits, 0x3f80);
  EXPECT_EQ(bfloat16(1.0f + 3.0f / 256).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::nanf("")))));
}

TEST(HalfTest, EveryFiniteBitPatternSurvivesTheWayThroughFloat) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const half h = half::FromRaw(static_cast<uint16_t>(bits));
    if (std::isnan(static_cast<float>(h))) continue;
    ASSERT_EQ(half(static_cast<float>(h)).bits, bits);
    const bfloat16 b = bfloat16::FromRaw(static_cast<uint16_t>(bits));
    if (std::isnan(static_cast<float>(b))) continue;
    ASSERT_EQ(bfloat16(static_cast<float>(b)).bits, bits);
  }
}

}  // namespace
}  // namespace millrace
