// The functions over arrays beside the standard library's in double, over floats of all sizes.
#include "millrace/ops/kernels/vector_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace millrace::vector {
namespace {

struct Function {
  const char* name;
  void (*run)(const float*, float*, int64_t);
  double (*exact)(double);
};

void PrintTo(const Function& f, std::ostream* os) { *os << f.name; }

class VectorMathTest : public testing::TestWithParam<Function> {};

std::vector<float> FloatsOfAllSizes() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 100003)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (const float v : {0.0f, 0.5f, 1.0f, 88.0f, 89.4f, std::numeric_limits<float>::infinity()}) {
    x.push_back(v);
    x.push_back(-v);
  }
  return x;
}

TEST_P(VectorMathTest, IsWithinAFewUnitsOfTheLastPlace) {
  const std::vector<float> x = FloatsOfAllSizes();
  std::vector<float> y(x.size());
  GetParam().run(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = GetParam().exact(x[i]);
    const float wanted = static_cast<float>(exact);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(y[i])) << x[i] << " gives " << y[i];
    } else if (std::isinf(wanted)) {
      EXPECT_EQ(y[i], wanted) << x[i];
    } else {
      EXPECT_NEAR(y[i], exact, 3e-7 * std::fabs(exact) + 1e-44) << x[i];
      EXPECT_EQ(std::signbit(y[i]), std::signbit(wanted)) << x[i];
    }
  }
}

TEST_P(VectorMathTest, DependsOnTheValueAlone) {
  const std::vector<float> x = FloatsOfAllSizes();
  const int64_t n = 1000;
  std::vector<float> together(n), in_place(x.begin(), x.begin() + n);
  GetParam().run(x.data(), together.data(), n);
  GetParam().run(in_place.data(), in_place.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    float alone;
    GetParam().run(&x[i], &alone, 1);
    EXPECT_EQ(std::bit_cast<uint32_t>(alone), std::bit_cast<uint32_t>(together[i])) << x[i];
    EXPECT_EQ(std::bit_cast<uint32_t>(alone), std::bit_cast<uint32_t>(in_place[i])) << x[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, VectorMathTest,
                         testing::Values(Function{"Expm1", Expm1, std::expm1}, Function{"Sinh", Sinh, std::sinh},
                                         Function{"Cosh", Cosh, std::cosh}, Function{"Acosh", Acosh, std::acosh},
                                         Function{"Atanh", Atanh, std::atanh}, Function{"Atan", Atan, std::atan},
                                         Function{"Erf", Erf, std::erf}, Function{"Tanh", Tanh, std::tanh},
                                         Function{"Rsqrt", Rsqrt, [](double x) { return 1 / std::sqrt(x); }}),
                         [](const auto& info) { return info.param.name; });

TEST(Atan2Test, IsThatOfThePairAloneForFloatsOfAllSizes) {
  std::vector<float> sizes;
  for (const float v : {0.0f, 1e-45f, 1e-30f, 3e-18f, 1e-4f, 0.3f, 1.0f, 2.5f, 7e5f, 9e17f, 1e30f,
                        std::numeric_limits<float>::infinity()}) {
    sizes.push_back(v);
    sizes.push_back(-v);
  }
  sizes.push_back(std::numeric_limits<float>::quiet_NaN());
  std::vector<float> ys, xs;
  for (const float y : sizes) {
    for (const float x : sizes) {
      ys.push_back(y);
      xs.push_back(x);
    }
  }
  std::vector<float> together(ys.size());
  Atan2(ys.data(), xs.data(), together.data(), static_cast<int64_t>(ys.size()));
  for (size_t i = 0; i < ys.size(); ++i) {
    const double exact = std::atan2(static_cast<double>(ys[i]), static_cast<double>(xs[i]));
    const std::vector<float> y(8, ys[i]), x(8, xs[i]);
    std::vector<float> among_its_like(8);
    Atan2(y.data(), x.data(), among_its_like.data(), 8);
    EXPECT_EQ(std::bit_cast<uint32_t>(together[i]), std::bit_cast<uint32_t>(among_its_like[0]))
        << ys[i] << ", " << xs[i];
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(together[i])) << ys[i] << ", " << xs[i];
    } else {
      EXPECT_NEAR(together[i], exact, 3e-7 * std::fabs(exact) + 1e-44) << ys[i] << ", " << xs[i];
      EXPECT_EQ(std::signbit(together[i]), std::signbit(exact)) << ys[i] << ", " << xs[i];
    }
  }
}

TEST(RsqrtTest, HasTheBitsOfTheQuotientForEveryMantissa) {
  constexpr int64_t kBlock = 4096;
  std::vector<float> x(kBlock), y(kBlock);
  // Two neighbouring exponents: any other differs from one of them by a power of 4.
  for (uint32_t bits = 0x3f800000; bits < 0x40800000; bits += kBlock) {
    for (uint32_t i = 0; i < kBlock; ++i) x[i] = std::bit_cast<float>(bits + i);
    Rsqrt(x.data(), y.data(), kBlock);
    int64_t other = 0;
    for (int64_t i = 0; i < kBlock; ++i) other += y[i] != 1.0f / std::sqrt(x[i]);
    ASSERT_EQ(other, 0) << x[0];
  }
}

TEST(RsqrtTest, HasTheBitsOfTheQuotientForFloatsOfAllSizes) {
  const std::vector<float> x = FloatsOfAllSizes();
  std::vector<float> y(x.size());
  Rsqrt(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const float wanted = 1.0f / std::sqrt(x[i]);
    EXPECT_TRUE(std::isnan(wanted) ? std::isnan(y[i])
                                   : std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(wanted))
        << x[i] << " gives " << y[i];
  }
}

TEST(ExpOfDifferenceTest, IsWithinAUnitOfTheLastPlaceAndKeepsWhatIsNotANumber) {
  std::vector<float> x;
  for (uint32_t bits = 0x80000000; bits < 0xc2ae0000; bits += 997)
    x.push_back(std::bit_cast<float>(bits));  // -0 to -87
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<float> y(n), sums(8);
  ExpOfDifference(x.data(), 0, y.data(), n, sums.data());
  for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], std::exp(static_cast<double>(x[i])), 1.2e-7 * y[i]) << x[i];
  // All payloads, the smallest of which a careless shift turns into numbers.
  const std::vector<float> odd = {std::bit_cast<float>(0x7fc00001u),
                                  std::bit_cast<float>(0xffc12345u),
                                  std::bit_cast<float>(0x7fffffffu),
                                  -std::numeric_limits<float>::infinity(),
                                  -1e30f,
                                  -104.0f,
                                  -87.4f};
  ExpOfDifference(odd.data(), 0, y.data(), static_cast<int64_t>(odd.size()), sums.data());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  for (int i = 3; i < 7; ++i) EXPECT_EQ(y[i], 0) << odd[i];
}

}  // namespace
}  // namespace millrace::vector
