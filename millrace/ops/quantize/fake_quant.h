// Shared by the FakeQuant ops: a range that is shifted slightly so that zero is representable.
#pragma once

#include <algorithm>
#include <cmath>

#include "millrace/runtime/kernel.h"

namespace millrace {

// The integer range given by the attrs num_bits and narrow_range.
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
    // Local copies, because stores might alias the members, and a separate loop for stride 1, so that it vectorises.
    const float first = low, last = high, width = step, per_step = 1.0f / step;
    const float zero = std::floor(-low * per_step + 0.5f);
    const auto quantize = [=](float value) {
      value = value > last ? last : value;
      value = value < first ? first : value;
      return std::floor((value - first) * per_step - zero + 0.5f) * width;
    };
    if (stride == 1) {
      for (int64_t i = 0; i < n; ++i) y[i] = quantize(x[i]);
    } else {
      for (int64_t i = 0; i < n * stride; i += stride) y[i] = quantize(x[i]);
    }
  }

  // The gradient passes inside the range. A product instead of a select, so that infinities propagate as NaN.
  void PassGradient(const float* dy, const float* x, float* dx, int64_t n) const {
    const float first = low, last = high;
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * (((x[i] >= first) & (x[i] <= last)) ? 1.0f : 0.0f);
  }

  // The same; gradients of values below and above the range are added to those of its ends.
  void Gradient(const float* dy, const float* x, float* dx, int64_t n, int64_t stride, double* dlow,
                double* dhigh) const {
    const float first = low, last = high;
    int64_t i = 0;
    if (stride == 1) {
      // Partial sums in float lanes, combined per block in a fixed order, independent of the number of threads.
      constexpr int kLanes = 16, kBlock = 32 * kLanes;
      while (n - i >= kLanes) {
        float below[kLanes] = {}, above[kLanes] = {};
        const int64_t end = i + std::min<int64_t>(kBlock, (n - i) / kLanes * kLanes);
        for (; i < end; i += kLanes) {
          for (int k = 0; k < kLanes; ++k) {
            const float g = dy[i + k], at = x[i + k];
            dx[i + k] = g * (((at >= first) & (at <= last)) ? 1.0f : 0.0f);
            below[k] += g * (at < first ? 1.0f : 0.0f);
            above[k] += g * (at > last ? 1.0f : 0.0f);
          }
        }
        for (int k = 0; k < kLanes; ++k) {
          *dlow += below[k];
          *dhigh += above[k];
        }
      }
    }
    for (; i < n; ++i) {
      const float g = dy[i * stride], at = x[i * stride];
      dx[i * stride] = g * (((at >= first) & (at <= last)) ? 1.0f : 0.0f);
      *dlow += g * (at < first ? 1.0f : 0.0f);
      *dhigh += g * (at > last ? 1.0f : 0.0f);
    }
  }
};

inline Status CheckSameShape(const Tensor& gradients, const Tensor& inputs) {
  if (gradients.shape() == inputs.shape()) return absl::OkStatus();
  return InvalidArgument("gradient and input must be the same size, but have shapes ", gradients.shape().ToString(),
                         " and ", inputs.shape().ToString());
}

}  // namespace millrace
