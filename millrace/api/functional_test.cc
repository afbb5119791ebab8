#include "millrace/api/functional.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MapFn, StacksTheResultsAndHasAGradient) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}), factor = ops::Const(s, 2.0);
  const Output y = MapFn(
      s, [&](const Scope& b, const Output& row) { return ops::Sum(b, row * row, 0) * factor; }, x);
  const std::vector<Gradient> g = Gradients(s, {y}, {x, factor});
  const std::vector<Output> two = MapFn(
      s,
      [](const Scope& b, const std::vector<Output>& e) {
        return std::vector<Output>{ops::Cast(b, e[0], DType::kInt32), e[1] - e[0], e[0] * 10.0f};
      },
      std::vector<Output>{x, x + 1.0f});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(y.shape(), PartialShape({3}));
  const Tensors r = RunOnce(s, {y, g[0].dense(), g[1].dense(), two[0], two[1], two[2]});
  ASSERT_EQ(r.size(), 6);
  EXPECT_THAT(Floats(r[0]), ElementsAre(10, 50, 122));
  EXPECT_THAT(Floats(r[1]), ElementsAre(4, 8, 12, 16, 20, 24));
  EXPECT_EQ(r[2].scalar<float>(), 91);
  EXPECT_EQ(r[3].dtype(), DType::kInt32);
  EXPECT_EQ(r[3].data<int32_t>()[5], 6);
  EXPECT_THAT(Floats(r[4]), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_EQ(r[5].data<float>()[5], 60);
}

TEST(Scan, GivesTheValuesAfterEachElementInEitherDirection) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Const(s, {1.0, 2.0, 3.0, 4.0}), start = ops::Const(s, 10.0);
  const FoldOne add_half = [](const Scope&, const Output& sum, const Output& e) { return sum * 0.5f + e; };
  const Output with = Scan(s, add_half, x, start), without = Scan(s, add_half, x);
  const Output back = Scan(s, add_half, x, start, {.reverse = true});
  const Output back_without = Scan(s, add_half, x, {}, {.reverse = true});
  const std::vector<Gradient> g = Gradients(s, {with}, {x, start});
  const Gradient g_without = Gradients(s, {without}, {x})[0];
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {with, without, back, back_without, g[0].dense(), g[1].dense(), g_without.dense()});
  ASSERT_EQ(r.size(), 7);
  EXPECT_THAT(Floats(r[0]), ElementsAre(6, 5, 5.5, 6.75));
  EXPECT_THAT(Floats(r[1]), ElementsAre(1, 2.5, 4.25, 6.125));
  EXPECT_THAT(Floats(r[2]), ElementsAre(3.875, 5.75, 7.5, 9));
  EXPECT_THAT(Floats(r[3]), ElementsAre(3.25, 4.5, 5, 4));
  EXPECT_THAT(Floats(r[4]), ElementsAre(1.875, 1.75, 1.5, 1));
  EXPECT_EQ(r[5].scalar<float>(), 0.9375);
  EXPECT_THAT(Floats(r[6]), ElementsAre(1.875, 1.75, 1.5, 1));
}

TEST(Fold, GoesFromTheFirstOrFromTheLastElement) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Placeholder(s, DType::kFloat, {.shape = {-1}});
  const FoldOne minus = [](const Scope&, const Output& a, const Output& e) { return a * 2.0f - e; };
  const Output left = Foldl(s, minus, x), right = Foldr(s, minus, x), from = Foldl(s, minus, x, ops::Const(s, 1.0));
  const Output g = Gradients(s, {left}, {x})[0].dense();
  // Two accumulators: a sum and a product.
  const std::vector<Output> both = Foldl(s,
                                         [](const Scope&, const std::vector<Output>& a, const std::vector<Output>& e) {
                                           return std::vector<Output>{a[0] + e[0], a[1] * e[0]};
                                         },
                                         std::vector<Output>{x}, {ops::Const(s, 0.0), ops::Const(s, 1.0)});
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors r = RunOnce(s, {left, right, from, g, both[0], both[1]}, {{x, Tensor::Of<float>({5, 3, 2})}});
  ASSERT_EQ(r.size(), 6);
  EXPECT_EQ(r[0].scalar<float>(), (5 * 2 - 3) * 2 - 2);
  EXPECT_EQ(r[1].scalar<float>(), (2 * 2 - 3) * 2 - 5);
  EXPECT_EQ(r[2].scalar<float>(), ((1 * 2 - 5) * 2 - 3) * 2 - 2);
  EXPECT_THAT(Floats(r[3]), ElementsAre(4, -2, -1));
  EXPECT_EQ(r[4].scalar<float>(), 10);
  EXPECT_EQ(r[5].scalar<float>(), 30);
}

TEST(Functional, MistakesNameTheTensor) {
  const auto message = [](const std::function<void(const Scope&)>& build) {
    const Scope s = Scope::NewRoot();
    build(s);
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  const auto same = [](const Scope&, const Output& e) { return e; };
  EXPECT_THAT(message([&](const Scope& s) { MapFn(s, same, ops::Const(s.WithOpName("one"), 1.0)); }),
              HasSubstr("map: one:0 of shape [] has no elements"));
  EXPECT_THAT(message([&](const Scope& s) {
                MapFn(
                    s, [](const Scope&, const std::vector<Output>& e) { return e; },
                    std::vector<Output>{ops::Const(s, {1, 2}), ops::Const(s.WithOpName("three"), {1, 2, 3})});
              }),
              HasSubstr("three:0 has 3 elements"));
  EXPECT_THAT(message([&](const Scope& s) {
                Foldl(s,
                      [](const Scope&, const std::vector<Output>&, const std::vector<Output>&) {
                        return std::vector<Output>{};
                      },
                      std::vector<Output>{ops::Const(s, {1, 2})}, {ops::Const(s, 1)});
              }),
              HasSubstr("the function gives 0 values for 1"));
}

}  // namespace
}  // namespace millrace
