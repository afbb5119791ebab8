#include "tests/ops/run_op.h"

namespace millrace {
namespace {

AttrList Window(int64_t k, int64_t s, const char* padding) {
  return {
      {"ksize", std::vector<int64_t>{1, k, k, 1}}, {"strides", std::vector<int64_t>{1, s, s, 1}}, {"padding", padding}};
}

Tensor Image(std::initializer_list<float> values, int64_t h, int64_t w) {
  return Tensor::Of<float>(Shape({1, h, w, 1}), values);
}

TEST(MaxPoolTest, TakesTheLargestAndSendsTheGradientToTheFirstOfEquals) {
  const Tensor x = Image({1, 5, 5, 2, 0, 3, 7, 7, 7}, 3, 3);
  const auto y = RunOp("MaxPool", {x}, Window(2, 1, "VALID"));
  ASSERT_TRUE(y.ok()) << y.status();
  ExpectNear((*y)[0], Image({5, 5, 7, 7}, 2, 2), 0);
  const auto dx = RunOp("MaxPoolGrad", {x, (*y)[0], Image({1, 2, 4, 8}, 2, 2)}, Window(2, 1, "VALID"));
  ASSERT_TRUE(dx.ok()) << dx.status();
  ExpectNear((*dx)[0], Image({0, 3, 0, 0, 0, 0, 4, 8, 0}, 3, 3), 0);
}

TEST(MaxPoolTest, PaddingNeverWins) {
  const auto y = RunOp("MaxPool", {Image({-4, -3, -2, -1}, 2, 2)}, Window(3, 2, "SAME"));
  ASSERT_TRUE(y.ok()) << y.status();
  ExpectNear((*y)[0], Image({-1}, 1, 1), 0);
}

TEST(AvgPoolTest, CountsThePixelsInsideOnly) {
  const Tensor x = Image({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 3);
  const auto y = RunOp("AvgPool", {x}, Window(2, 2, "SAME"));
  ASSERT_TRUE(y.ok()) << y.status();
  ExpectNear((*y)[0], Image({3, 4.5f, 7.5f, 9}, 2, 2), 1e-6f);
  const auto dx =
      RunOp("AvgPoolGrad", {Tensor::Of<int32_t>({1, 3, 3, 1}), Image({4, 2, 2, 1}, 2, 2)}, Window(2, 2, "SAME"));
  ASSERT_TRUE(dx.ok()) << dx.status();
  ExpectNear((*dx)[0], Image({1, 1, 1, 1, 1, 1, 1, 1, 1}, 3, 3), 1e-6f);
}

TEST(PoolTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Tensor x = Noise(Shape({17, 23, 19, 6}));
  for (const char* op : {"MaxPool", "AvgPool"}) {
    const auto y = RunOnAllThreads(op, {x}, Window(3, 2, "SAME"));
    ASSERT_EQ(y.size(), 1);
    const Tensor dy = Noise(y[0].shape(), 2);
    if (std::string(op) == "MaxPool") {
      RunOnAllThreads("MaxPoolGrad", {x, y[0], dy}, Window(3, 2, "SAME"));
    } else {
      RunOnAllThreads("AvgPoolGrad", {Tensor::Of<int32_t>({17, 23, 19, 6}), dy}, Window(3, 2, "SAME"));
    }
  }
}

TEST(PoolTest, BadShapesAndPlacesAreErrors) {
  EXPECT_EQ(RunOp("MaxPool", {Noise(Shape({3, 3}))}, Window(2, 1, "VALID")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      RunOp("AvgPoolGrad", {Tensor::Of<int32_t>({1, -3, 3, 1}), Noise(Shape({1, 2, 2, 1}))}, Window(2, 1, "VALID"))
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      RunOp("MaxPoolGradWithArgmax",
            {Noise(Shape({1, 3, 3, 1})), Noise(Shape({1, 1, 1, 1})), Tensor::Of<int64_t>(Shape({1, 1, 1, 1}), {9})},
            Window(3, 3, "VALID"))
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
