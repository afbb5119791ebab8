#include "millrace/ops/nn/conv_epilogue.h"

#include <algorithm>

namespace millrace {
namespace {

// Several short rows are processed together with a replicated bias, so that vectors are full.
constexpr int64_t kTile = 256;

void AddBias(const float* __restrict bias, int64_t n, bool relu, float* __restrict x) {
  if (relu) {
    for (int64_t i = 0; i < n; ++i) {
      const float z = x[i] + bias[i];
      x[i] = z < 0.0f ? 0.0f : z;
    }
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] += bias[i];
  }
}

}  // namespace

void ConvEpilogue::Apply(float* x, int64_t pixels, int64_t channels) const {
  if (bias == nullptr) return;
  const bool relu = activation == Activation::kRelu;
  const int64_t rows = std::max<int64_t>(1, kTile / std::max<int64_t>(channels, 1));
  float tile[kTile];
  const float* repeated = bias;
  if (rows > 1) {
    for (int64_t r = 0; r < rows; ++r) std::copy(bias, bias + channels, tile + r * channels);
    repeated = tile;
  }
  for (int64_t p = 0; p < pixels; p += rows) {
    const int64_t n = std::min(rows, pixels - p) * channels;
    AddBias(repeated, n, relu, x + p * channels);
    if (!relu) Activate(activation, alpha, x + p * channels, n);
  }
}

void ConvEpilogue::ApplyToPlanes(float* x, int64_t images, int64_t pixels, int64_t channels) const {
  if (bias == nullptr) return;
  for (int64_t plane = 0; plane < images * channels; ++plane, x += pixels) {
    const float add = bias[plane % channels];
    for (int64_t i = 0; i < pixels; ++i) x[i] += add;
    Activate(activation, alpha, x, pixels);
  }
}

}  // namespace millrace
