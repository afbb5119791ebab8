// What golden cases do not show: sizes that are spread over threads, numbers that are none, the oldest form.
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(Quantize, LargeTensorsComeBackWithinTwoSteps) {
  const int64_t n = 200000;
  Tensor x(DType::kFloat, Shape({n}));
  for (int64_t i = 0; i < n; ++i) x.data<float>()[i] = static_cast<float>(i) / n * 4 - 2;
  const Tensor low = Tensor::Scalar(-2.0f), high = Tensor::Scalar(2.0f);
  for (const char* mode : {"MIN_COMBINED", "MIN_FIRST", "SCALED"}) {
    const auto q = RunOp("QuantizeV2", {x, low, high}, {{"T", DType::kQInt8}, {"mode", mode}});
    ASSERT_TRUE(q.ok()) << q.status();
    const auto back = RunOp("Dequantize", {(*q)[0], low, high}, {{"mode", mode}});
    ASSERT_TRUE(back.ok()) << back.status();
    for (int64_t i = 0; i < n; ++i) ASSERT_NEAR((*back)[0].data<float>()[i], x.data<float>()[i], 1.6 * 4 / 255) << mode;
  }
}

TEST(Quantize, NumbersThatAreNoneStayInTheType) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const char* mode : {"MIN_COMBINED", "MIN_FIRST", "SCALED"}) {
    const auto q =
        RunOp("QuantizeV2", {Tensor::Of<float>({nan, inf, -inf}), Tensor::Scalar(-1.0f), Tensor::Scalar(1.0f)},
              {{"T", DType::kQUInt8}, {"mode", mode}});
    ASSERT_TRUE(q.ok()) << q.status();
    const uint8_t* got = (*q)[0].raw<uint8_t>();
    EXPECT_THAT(std::vector<int>(got, got + 3), ElementsAre(0, 255, 0)) << mode;
  }
}

TEST(QuantizeAndDequantize, TheOldestFormHasItsRangeInAttrs) {
  const auto y = RunOp("QuantizeAndDequantize", {Tensor::Of<float>({-2, 0.4f, 2})},
                       {{"range_given", true}, {"input_min", -1.0f}, {"input_max", 1.0f}, {"num_bits", int64_t{2}}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0].flat<float>(), ElementsAre(-2, 0, 1));
  const auto bad = RunOp("QuantizeAndDequantize", {Tensor::Of<float>({1})},
                         {{"range_given", true}, {"input_min", 1.0f}, {"input_max", -1.0f}});
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(QuantizeAndDequantize, EachSliceMayHaveARangeOfItsOwn) {
  const auto y =
      RunOp("QuantizeAndDequantizeV2",
            {Tensor::Of<float>(Shape({2, 2}), {5, 5, 5, 5}), Tensor::Of<float>({-1, -2}), Tensor::Of<float>({1, 2})},
            {{"range_given", true}, {"axis", int64_t{1}}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0].flat<float>(), ElementsAre(1, 2, 1, 2));
}

TEST(FakeQuant, AnUntrainedRangeGivesZeros) {
  const auto y =
      RunOp("FakeQuantWithMinMaxVars", {Tensor::Of<float>({1, 2}), Tensor::Scalar(0.0f), Tensor::Scalar(0.0f)});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0].flat<float>(), Each(0.0f));
}

}  // namespace
}  // namespace millrace
