#include "examples/wide_deep/clicks.h"

#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

using namespace millrace;

namespace {

// A number that looks random, for each pair of numbers (splitmix64).
uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xD1B54A32D192ED03u + 0x8CB92BA72F3D8DD7u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
// In [0, 1).
double Unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// What the values of each category are called, and how much each moves the odds.
struct Category {
  std::vector<std::string> names;
  std::vector<float> effects;
};
using Categories = std::vector<Category>;

std::shared_ptr<const Categories> MakeCategories(int64_t values) {
  auto all = std::make_shared<Categories>(kCategories);
  for (uint64_t c = 0; c < kCategories; ++c) {
    for (int64_t v = 0; v < values; ++v) {
      const uint64_t bits = Mix(1000 + c, static_cast<uint64_t>(v));
      (*all)[c].names.push_back(absl::StrFormat("%08x", static_cast<uint32_t>(bits)));
      (*all)[c].effects.push_back(static_cast<float>(Unit(Mix(bits, 7)) * 2 - 1));
    }
  }
  return all;
}

void FillBatch(const Categories& categories, const ClicksOptions& options, int64_t batch, std::vector<Tensor>* out) {
  const Shape column({options.batch_size, 1});
  out->clear();
  for (int i = 0; i < kNumbers; ++i) out->emplace_back(DType::kFloat, column);
  for (int i = 0; i < kCategories; ++i) out->emplace_back(DType::kString, column);
  out->emplace_back(DType::kInt64, column);
  for (int64_t row = 0; row < options.batch_size; ++row) {
    const auto example = static_cast<uint64_t>(options.first + batch * options.stride * options.batch_size + row);
    double score = 0;
    for (uint64_t i = 0; i < kNumbers; ++i) {
      const double x = Unit(Mix(example, i)) * 2 - 1;
      (*out)[i].data<float>()[row] = static_cast<float>(x);
      score += (i % 2 == 0 ? 0.5 : -0.5) * x;
    }
    for (uint64_t c = 0; c < kCategories; ++c) {
      const double u = Unit(Mix(example, 100 + c));
      const auto v = static_cast<size_t>(static_cast<double>(options.values) * u * u * u);
      (*out)[kNumbers + c].data<std::string>()[row] = categories[c].names[v];
      score += 0.8 * categories[c].effects[v];
    }
    const double chance = 1 / (1 + std::exp(-score));
    out->back().data<int64_t>()[row] = Unit(Mix(example, 999)) < chance ? 1 : 0;
  }
}

}  // namespace

std::vector<std::string> FeatureNames() {
  std::vector<std::string> names;
  for (int i = 1; i <= kNumbers; ++i) names.push_back(absl::StrCat("I", i));
  for (int i = 1; i <= kCategories; ++i) names.push_back(absl::StrCat("C", i));
  return names;
}

Dataset Clicks(const ClicksOptions& options) {
  const std::shared_ptr<const Categories> categories = MakeCategories(options.values);
  return Dataset::FromGenerator([=](uint64_t) -> Generator {
    return [=, batch = int64_t{0}](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
      if (batch == options.batches) return false;
      FillBatch(*categories, options, batch++, element);
      return true;
    };
  });
}
