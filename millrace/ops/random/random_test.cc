#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/ops/random/distributions.h"
#include "tests/ops/op_session.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

class RandomTest : public OpSessionTest {
 protected:
  Endpoint Random(absl::string_view op, int32_t n, int64_t seed, DType dtype = DType::kFloat) {
    return b_.Op(op, {b_.Ints({n})}, {{"dtype", dtype}, {"seed", seed}, {"seed2", int64_t{7}}});
  }
};

TEST_F(RandomTest, SameSeedGivesTheSameSequenceInTwoSessions) {
  const Endpoint x = Random("RandomUniform", 5, 3);
  const std::vector<float> first = Values<float>(x), second = Values<float>(x);
  EXPECT_NE(first, second);
  session_.reset();
  EXPECT_EQ(Values<float>(x), first);
  EXPECT_EQ(Values<float>(x), second);
}

TEST_F(RandomTest, NodesWithoutSeedsDiffer) {
  const auto unseeded = [&] { return b_.Op("RandomUniform", {b_.Ints({8})}, {{"dtype", DType::kFloat}}); };
  const Endpoint a = unseeded(), b = unseeded();
  EXPECT_NE(Values<float>(a), Values<float>(b));
}

TEST_F(RandomTest, LongTensorBeginsAsAShortOne) {
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    std::vector<float> longer = Values<float>(Random(op, 100003, 5));
    const std::vector<float> shorter = Values<float>(Random(op, 17, 5));
    longer.resize(17);
    EXPECT_EQ(longer, shorter) << op;
  }
}

TEST_F(RandomTest, MomentsAreThoseOfTheDistribution) {
  const auto moments = [&](const char* op) {
    const std::vector<float> x = Values<float>(Random(op, 200000, 11));
    double sum = 0, squares = 0;
    for (float v : x) sum += v, squares += double{v} * v;
    const double mean = sum / x.size();
    return std::pair(mean, std::sqrt(squares / x.size() - mean * mean));
  };
  const auto [uniform_mean, uniform_deviation] = moments("RandomUniform");
  EXPECT_NEAR(uniform_mean, 0.5, 0.005);
  EXPECT_NEAR(uniform_deviation, std::sqrt(1 / 12.0), 0.005);
  const auto [normal_mean, normal_deviation] = moments("RandomStandardNormal");
  EXPECT_NEAR(normal_mean, 0, 0.01);
  EXPECT_NEAR(normal_deviation, 1, 0.01);
  const auto [cut_mean, cut_deviation] = moments("TruncatedNormal");
  EXPECT_NEAR(cut_mean, 0, 0.01);
  EXPECT_NEAR(cut_deviation, 0.8796, 0.01);
}

TEST_F(RandomTest, KeyAndCounterOfASeedGiveTheSeedsNumbers) {
  const Endpoint seed = b_.Const(Tensor::Of<int64_t>({3, -4}));
  Node* key = b_.AddNode("StatelessRandomGetKeyCounterAlg", {seed});
  const Endpoint shape = b_.Ints({9});
  const Endpoint direct = b_.Op("StatelessRandomUniformFullInt", {shape, seed});
  const Endpoint by_key =
      b_.Op("StatelessRandomUniformFullIntV2", {shape, key->output(0), key->output(1), key->output(2)});
  EXPECT_EQ(Values<uint64_t>(direct), Values<uint64_t>(by_key));
  EXPECT_EQ(Values<uint64_t>(direct), Values<uint64_t>(direct));
  EXPECT_EQ(Values<int32_t>(b_.Op("StatelessRandomGetAlg", {})), std::vector<int32_t>({1}));
  const Endpoint three_fry =
      b_.Op("StatelessRandomUniformFullIntV2", {shape, key->output(0), key->output(1), b_.Scalar<int32_t>(2)});
  EXPECT_EQ(Fetch({three_fry}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RandomTest, StatelessDrawsFollowFromTheSeed) {
  const Endpoint logits = b_.Const(Tensor::Of<float>(Shape({1, 3}), {0, 0, 0}));
  const auto draw = [&](int64_t seed) {
    return Values<int64_t>(
        b_.Op("StatelessMultinomial", {logits, b_.Scalar<int32_t>(40), b_.Const(Tensor::Of<int64_t>({seed, 0}))}));
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST_F(RandomTest, EmptyRangeOfIntegersIsRefused) {
  const Endpoint x = b_.Op("RandomUniformInt", {b_.Ints({3}), b_.Scalar<int32_t>(5), b_.Scalar<int32_t>(5)});
  EXPECT_EQ(Fetch({x}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RandomTest, WholeRangeOfIntegersDoesNotOverflow) {
  const Endpoint x = b_.Op(
      "RandomUniformInt",
      {b_.Ints({1000}), b_.Scalar(std::numeric_limits<int64_t>::min()), b_.Scalar(std::numeric_limits<int64_t>::max())},
      {{"seed", 1}});
  int negative = 0;
  for (int64_t v : Values<int64_t>(x)) negative += v < 0;
  EXPECT_GT(negative, 400);
  EXPECT_LT(negative, 600);
}

TEST_F(RandomTest, NegativeShapeIsRefused) {
  NodeSpec spec{.name = "bad", .op = "RandomUniform", .inputs = {b_.Ints({-2})}};
  spec.attrs["dtype"] = AttrInit(DType::kFloat).value();
  Node* bad = graph_.AddNode(std::move(spec)).value();
  EXPECT_EQ(Fetch({bad->output(0)}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RandomTest, ShuffleKeepsRowsWhole) {
  Tensor rows(DType::kInt32, Shape({50, 2}));
  for (int i = 0; i < 100; ++i) rows.data<int32_t>()[i] = i;
  const std::vector<int32_t> shuffled = Values<int32_t>(b_.Op("RandomShuffle", {b_.Const(rows)}, {{"seed", 4}}));
  ASSERT_EQ(shuffled.size(), 100u);
  std::vector<int32_t> firsts;
  for (size_t i = 0; i < shuffled.size(); i += 2) {
    EXPECT_EQ(shuffled[i] + 1, shuffled[i + 1]);
    firsts.push_back(shuffled[i]);
  }
  EXPECT_FALSE(std::is_sorted(firsts.begin(), firsts.end()));
  std::sort(firsts.begin(), firsts.end());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(firsts[i], 2 * i);
}

TEST_F(RandomTest, ImpossibleClassesAreNeverDrawn) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const Endpoint logits = b_.Const(Tensor::Of<float>(Shape({1, 4}), {kNever, 0, kNever, 0}));
  int threes = 0;
  for (int64_t c : Values<int64_t>(b_.Op("Multinomial", {logits, b_.Scalar<int32_t>(500)}, {{"seed", 2}}))) {
    EXPECT_TRUE(c == 1 || c == 3) << c;
    threes += c == 3;
  }
  EXPECT_GT(threes, 200);
  EXPECT_LT(threes, 300);
}

// No number lies between the bounds, however many are drawn.
TEST(ParameterizedTruncatedNormal, OfAnInfiniteMeanEnds) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto result = RunOp("ParameterizedTruncatedNormal",
                            {Tensor::Of<int32_t>({1 << 20}), Tensor::Of<double>({inf}), Tensor::Of<double>({1}),
                             Tensor::Of<double>({1e-30}), Tensor::Of<double>({2})},
                            {{"dtype", DType::kDouble}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(std::isfinite((*result)[0].data<double>()[0]));
}

}  // namespace
}  // namespace millrace
