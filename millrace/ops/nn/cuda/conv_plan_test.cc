// cuDNN has an engine on an H200 for every convolution that the examples train, and for a grid of others: plans are
// made from the card's properties, on machines without one.
#include "millrace/ops/nn/cuda/conv_plan.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr ConvKind kConvKinds[] = {ConvKind::kForward, ConvKind::kBackwardInput, ConvKind::kBackwardFilter};

class ConvPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = Cudnn::Get().status(); !status.ok()) GTEST_SKIP() << status;
    cudnn_ = Cudnn::Get().value();
    std::stringstream json;
    json << std::ifstream(MILLRACE_TESTDATA "/gpu/h200.json").rdbuf();
    std::string text = json.str();
    if (text.empty()) GTEST_SKIP() << "there is no testdata here";
    while (!text.empty() && text.back() == '\n') text.pop_back();
    StatusOr<CudnnTarget> card = CudnnTarget::OfProperties(*cudnn_, text);
    ASSERT_TRUE(card.ok()) << card.status();
    h200_ = *card;
  }

  // The engine's number, or -1.
  int64_t EngineOf(const ConvPlanKey& key) {
    const StatusOr<ConvPlan> plan = ConvPlan::Make(*cudnn_, h200_, key);
    if (plan.ok()) return plan->engine();
    EXPECT_TRUE(absl::IsNotFound(plan.status())) << plan.status();
    return -1;
  }

  static ConvGeometry Square(int64_t batch, int64_t in, int64_t size, int64_t out, int64_t window, int64_t stride) {
    WindowAttrs attrs;
    attrs.padding = WindowPadding::kSame;
    attrs.strides = {1, stride, stride};
    return MakeConvGeometry(attrs, Shape({batch, size, size, in}), Shape({window, window, in, out}), false).value();
  }

  const Cudnn* cudnn_ = nullptr;
  CudnnTarget h200_;
};

// Calls fn(key) for each way in which `g` may be computed.
template <typename Fn>
void ForEachConvPlan(const ConvGeometry& g, Fn fn) {
  for (const DType dtype : {DType::kBFloat16, DType::kHalf, DType::kFloat}) {
    for (const bool tf32 : {true, false}) {
      if (!tf32 && dtype != DType::kFloat) continue;
      for (const ConvKind kind : kConvKinds)
        fn(ConvPlanKey{.kind = kind, .dtype = dtype, .math = {.tf32 = tf32}, .geometry = g});
    }
  }
}

// The convolutions of ResNet-20 and ResNet-56, which differ in how many there are of each, with batches of 128.
TEST_F(ConvPlanTest, TheEnginesOfResNetsAreThoseOfTheTable) {
  const std::vector<ConvGeometry> all = {Square(128, 3, 32, 16, 3, 1),  Square(128, 16, 32, 16, 3, 1),
                                         Square(128, 16, 32, 32, 3, 2), Square(128, 16, 32, 32, 1, 2),
                                         Square(128, 32, 16, 32, 3, 1), Square(128, 32, 16, 64, 3, 2),
                                         Square(128, 32, 16, 64, 1, 2), Square(128, 64, 8, 64, 3, 1)};
  const std::string version = absl::StrCat("cuDNN ", cudnn_->cudnnGetVersion());
  std::string table = version + "\n";
  for (const ConvGeometry& g : all) {
    ForEachConvPlan(g, [&](const ConvPlanKey& key) {
      const int64_t engine = EngineOf(key);
      EXPECT_GE(engine, 0) << key.DebugString();
      absl::StrAppend(&table, key.DebugString(), ": engine ", engine, "\n");
    });
  }
  const char* const file = MILLRACE_TESTDATA "/gpu/h200_convolutions.txt";
  std::stringstream stored;
  stored << std::ifstream(file).rdbuf();
  if (std::getenv("MILLRACE_UPDATE_TABLES") != nullptr) std::ofstream(file) << table;
  // Another version may choose otherwise.
  if (absl::StartsWith(stored.str(), version + "\n")) {
    EXPECT_EQ(stored.str(), table) << "MILLRACE_UPDATE_TABLES=1 writes what it is now";
  }
}

TEST_F(ConvPlanTest, ThereIsADeterministicEngineForEveryShapeTypeAndPadding) {
  int plans = 0, other_without_tf32 = 0, other_if_not_deterministic = 0;
  for (const bool first : {false, true}) {
    for (const int64_t in : {3, 16}) {
      for (const int64_t out : {7, 64}) {
        for (const int64_t window : {1, 2, 3, 5}) {
          for (const auto& [stride, dilation] : {std::pair<int64_t, int64_t>(1, 1), {2, 1}, {3, 1}, {1, 2}}) {
            WindowAttrs attrs;
            attrs.channels_first = first;
            // SAME pads windows of 2 and strides of 2 on one side only.
            attrs.padding = in == 3    ? WindowPadding::kSame
                            : out == 7 ? WindowPadding::kValid
                                       : WindowPadding::kExplicit;
            attrs.strides = {1, stride, stride};
            attrs.dilations = {1, dilation, dilation};
            attrs.explicit_pads = {{{0, 0}, {0, 1}, {2, 1}}};
            const ConvGeometry g = MakeConvGeometry(attrs, first ? Shape({8, in, 16, 15}) : Shape({8, 16, 15, in}),
                                                    Shape({window, window, in, out}), false)
                                       .value();
            int64_t with_tf32[3] = {};
            ForEachConvPlan(g, [&](ConvPlanKey key) {
              StatusOr<ConvPlan> plan = ConvPlan::Make(*cudnn_, h200_, key);
              ASSERT_TRUE(plan.ok()) << plan.status();
              ++plans;
              EXPECT_FALSE(plan->Has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) << key.DebugString();
              if (key.dtype != DType::kFloat) return;
              int64_t* const engine = &with_tf32[static_cast<int>(key.kind)];
              if (key.math.tf32) {
                *engine = plan->engine();
                key.math.deterministic = false;
                other_if_not_deterministic += EngineOf(key) != *engine;
              } else {
                EXPECT_FALSE(plan->Has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) << key.DebugString();
                other_without_tf32 += plan->engine() != *engine;
              }
            });
          }
        }
      }
    }
  }
  std::cout << plans << " plans; without TF32 " << other_without_tf32 << " have another engine, if they need not be "
            << "deterministic " << other_if_not_deterministic << "\n";
  EXPECT_GT(other_without_tf32, 0);
}

TEST_F(ConvPlanTest, OddShapes) {
  struct Odd {
    const char* what;
    ConvGeometry geometry;
  };
  WindowAttrs valid, volume, volume_first, large;
  volume.rank = volume_first.rank = 3;
  volume.padding = volume_first.padding = large.padding = WindowPadding::kSame;
  volume_first.channels_first = true;
  large.strides = {1, 4, 4};
  WindowAttrs first;
  first.channels_first = true;
  const auto make = [](const WindowAttrs& attrs, const Shape& in, const Shape& filter) {
    return MakeConvGeometry(attrs, in, filter, false).value();
  };
  const std::vector<Odd> all = {
      {"one pixel", make(valid, Shape({1, 1, 1, 1}), Shape({1, 1, 1, 1}))},
      {"one output", make(valid, Shape({3, 9, 9, 5}), Shape({9, 9, 5, 3}))},
      {"a row", make(valid, Shape({4, 1, 50, 6}), Shape({1, 3, 6, 4}))},
      {"AlexNet", make(large, Shape({16, 227, 227, 3}), Shape({11, 11, 3, 96}))},
      {"groups", make(valid, Shape({4, 8, 8, 16}), Shape({3, 3, 4, 32}))},
      {"groups, channels first", make(first, Shape({4, 16, 8, 8}), Shape({3, 3, 4, 32}))},
      {"volume", make(volume, Shape({2, 8, 9, 10, 4}), Shape({3, 3, 3, 4, 8}))},
      {"odd volume", make(volume, Shape({2, 5, 6, 7, 3}), Shape({2, 3, 1, 3, 5}))},
      {"volume, channels first", make(volume_first, Shape({2, 4, 8, 9, 10}), Shape({3, 3, 3, 4, 8}))}};
  for (const Odd& odd : all) {
    ForEachConvPlan(odd.geometry, [&](const ConvPlanKey& key) {
      EXPECT_GE(EngineOf(key), 0) << odd.what << ": " << key.DebugString();
    });
  }
}

}  // namespace
}  // namespace millrace
