// What the FakeQuant ops share: a range moved a little, so that zero is one of its steps.
#pragma once

#include <cmath>

#include "millrace/runtime/kernel.h"

namespace millrace {

// The attrs num_bits and narrow_range: which integers there are.
struct FakeQuantSteps {
  explicit FakeQuantSteps(KernelInit& init) {
    int64_t bits = 8;
    bool narrow = false;
    init.Attr("num_bits", &bits);
    init.Attr("narrow_range", &narrow);
    if (bits < 2 || bits > 16) {
      init.Fail(InvalidArgument("num_bits must be between 2 and 16, inclusive, got ", bits));
      return;
    }
    first = narrow ? 1.0f : 0.0f;
    last = static_cast<float>((1 << bits) - 1);
  }
  float first = 0;
  float last = 255;
};

struct NudgedRange {
  float low, high, step;

  NudgedRange(float min, float max, const FakeQuantSteps& steps) {
    step = (max - min) / (steps.last - steps.first);
    float zero = steps.first - min / step;
    zero = zero < steps.first ? steps.first : zero > steps.last ? steps.last : std::round(zero);
    low = (steps.first - zero) * step;
    high = (steps.last - zero) * step;
  }

  void Quantize(const float* x, float* y, int64_t n, int64_t stride = 1) const {
    const float per_step = 1.0f / step;
    const float zero = std::floor(-low * per_step + 0.5f);
    for (int64_t i = 0; i < n * stride; i += stride) {
      float value = x[i] > high ? high : x[i];
      value = value < low ? low : value;
      y[i] = std::floor((value - low) * per_step - zero + 0.5f) * step;
    }
  }

  // The gradient passes inside the range; what falls below and above is added to the ends'. A product rather
  // than a choice, so that infinities show.
  void Gradient(const float* dy, const float* x, float* dx, int64_t n, int64_t stride, double* dlow, double* dhigh) const {
    for (int64_t i = 0; i < n * stride; i += stride) {
      dx[i] = dy[i] * (x[i] >= low && x[i] <= high ? 1.0f : 0.0f);
      *dlow += dy[i] * (x[i] < low ? 1.0f : 0.0f);
      *dhigh += dy[i] * (x[i] > high ? 1.0f : 0.0f);
    }
  }
};

inline Status CheckSameShape(const Tensor& gradients, const Tensor& inputs) {
  if (gradients.shape() == inputs.shape()) return absl::OkStatus();
  return InvalidArgument("gradient and input must be the same size, but have shapes ", gradients.shape().ToString(),
                         " and ", inputs.shape().ToString());
}

}  // namespace millrace
