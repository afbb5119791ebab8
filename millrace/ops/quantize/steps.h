// The mode MIN_FIRST: the ends of the range are rounded to multiples of a step, so that zero is representable.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace millrace {

template <typename T>
struct QuantizedSteps {
  static constexpr int64_t kSteps = int64_t{1} << (8 * sizeof(T));
  static constexpr float kLowest = static_cast<float>(std::numeric_limits<T>::min());

  QuantizedSteps(float min, float max) {
    constexpr double kLast = static_cast<double>(kSteps - 1);
    const double range = max - min;
    steps_per_unit = range == 0 ? 0.0f : static_cast<float>(kLast / range);
    step = static_cast<float>(range / kLast);
    first_step = std::round(min * steps_per_unit);
    first_value = range == 0 ? min : std::round(min / step) * step;
  }

  // Not yet clamped to the range of T.
  float Number(float value) const { return std::round(value * steps_per_unit) - (first_step - kLowest); }
  float Value(T number) const { return first_value + (static_cast<float>(number) - kLowest) * step; }

  float steps_per_unit;
  float step;
  float first_step;
  float first_value;
};

}  // namespace millrace
