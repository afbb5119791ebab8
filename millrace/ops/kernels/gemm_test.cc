#include "millrace/ops/kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace millrace {
namespace {

std::vector<float> Numbers(int64_t n, uint32_t seed) {
  std::vector<float> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 7919 + seed * 104729) % 201) / 100.0f - 1.0f;
  return v;
}

double Element(const GemmShape& s, const std::vector<float>& a, const std::vector<float>& b, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t p = 0; p < s.k; ++p) {
    sum += static_cast<double>(a[s.transpose_a ? p * s.m + i : i * s.k + p]) *
           static_cast<double>(b[s.transpose_b ? j * s.k + p : p * s.n + j]);
  }
  return sum;
}

struct Sizes {
  int64_t m, n, k;
};

class GemmTest : public testing::TestWithParam<Sizes> {};

TEST_P(GemmTest, AgreesWithSumsInDoubleWhateverIsTransposed) {
  const auto [m, n, k] = GetParam();
  for (int flags = 0; flags < 4; ++flags) {
    const GemmShape shape{.m = m, .n = n, .k = k, .transpose_a = (flags & 1) != 0, .transpose_b = (flags & 2) != 0};
    const std::vector<float> a = Numbers(m * k, 1), b = Numbers(k * n, 2);
    std::vector<float> c(m * n, NAN);
    ASSERT_TRUE(Gemm::Get(shape)->Run(nullptr, a.data(), b.data(), c.data()).ok());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        ASSERT_NEAR(c[i * n + j], Element(shape, a, b, i, j), 1e-5 * (k + 1)) << i << " " << j << " " << flags;
      }
    }
  }
}

TEST_P(GemmTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  const auto [m, n, k] = GetParam();
  for (int flags = 0; flags < 4; ++flags) {
    const GemmShape shape{.m = m, .n = n, .k = k, .transpose_a = (flags & 1) != 0, .transpose_b = (flags & 2) != 0};
    const std::vector<float> a = Numbers(m * k, 3), b = Numbers(k * n, 4);
    std::vector<float> one(m * n), many(m * n);
    ASSERT_TRUE(Gemm::Get(shape)->Run(nullptr, a.data(), b.data(), one.data()).ok());
    for (int workers : {1, 7}) {
      ThreadPool pool("test", workers);
      ASSERT_TRUE(Gemm::Get(shape)->Run(&pool, a.data(), b.data(), many.data()).ok());
      ASSERT_EQ(one, many) << workers << " " << flags;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GemmTest,
                         testing::Values(Sizes{1, 1, 1}, Sizes{3, 5, 7}, Sizes{100, 10, 100}, Sizes{100, 100, 784},
                                         Sizes{33, 1, 900}, Sizes{1, 333, 64}, Sizes{5, 6, 0}, Sizes{300, 270, 65},
                                         Sizes{97, 1100, 50}));

TEST(GemmTiles, EveryElementIsHandedToTheEpilogueOnce) {
  const GemmShape shape{.m = 300, .n = 700, .k = 96};
  const std::vector<float> a = Numbers(shape.m * shape.k, 1), b = Numbers(shape.k * shape.n, 2);
  std::vector<float> c(shape.m * shape.n), plain(shape.m * shape.n);
  const Gemm* gemm = Gemm::Get(shape);
  EXPECT_GT(gemm->num_tiles(), 1);
  ThreadPool pool("test", 3);
  ASSERT_TRUE(gemm->Run(nullptr, a.data(), b.data(), plain.data()).ok());
  ASSERT_TRUE(gemm->Run(&pool, a.data(), b.data(), c.data(),
                        [](const GemmTile& t) {
                          for (int64_t i = 0; i < t.rows; ++i) {
                            for (int64_t j = 0; j < t.cols; ++j) t.data[i * t.stride + j] += 1000.0f;
                          }
                        })
                  .ok());
  for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], plain[i] + 1000.0f) << i;
}

TEST(GemmTiles, EmptyProductsHaveNoTiles) {
  EXPECT_EQ(Gemm::Get({.m = 0, .n = 5, .k = 3})->num_tiles(), 0);
  EXPECT_EQ(Gemm::Get({.m = 5, .n = 0, .k = 3})->num_tiles(), 0);
}

TEST(GemmTiles, TheWorkOfASmallNetworkIsSplitForTwoThreads) {
  EXPECT_EQ(Gemm::Get({.m = 100, .n = 100, .k = 784})->num_tiles() % 2, 0);
  EXPECT_EQ(Gemm::Get({.m = 784, .n = 100, .k = 100, .transpose_a = true})->num_tiles() % 2, 0);
}

}  // namespace
}  // namespace millrace
