// Loops that compute a function and the sums and products around it, as in GELU, with intermediate values in registers.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace millrace {

// (factor * scale) * (f(x / before) + add), or a part of it. Each operation rounds separately.
struct FunctionShape {
  enum class Before : uint8_t { kNothing, kMul, kDiv };
  enum class After : uint8_t { kNothing, kAdd, kAddMul, kAddMulScaled };
  Before before = Before::kNothing;
  After after = After::kNothing;
};

// The operands in order: x, before, add, factor, scale. x and factor are arrays, the others scalars; those that the
// shape does not have are ignored. `y` may alias x or factor.
using FunctionLoop = void (*)(const float* const* operands, float* y, int64_t n);

inline constexpr int kMostFunctionOperands = 5;

// Supports Erf and Tanh; null for other ops.
FunctionLoop FindFunctionLoop(absl::string_view op, FunctionShape shape);

}  // namespace millrace
