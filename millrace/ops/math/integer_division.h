// Integer division that never traps.
#pragma once

#include <limits>
#include <type_traits>

namespace millrace {

inline constexpr char kDivisionByZero[] = "Integer division by zero";

// a / b truncated towards zero. Sets *bad if b is 0. The smallest number divided by -1 wraps to itself, where the CPU
// would trap.
template <typename T>
T DivideTowardsZero(T a, T b, bool* bad) {
  if (b == 0) {
    *bad = true;
    return 0;
  }
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return static_cast<T>(T(0) - a);
  }
  return static_cast<T>(a / b);
}

// a - DivideTowardsZero(a, b) * b: has the sign of a.
template <typename T>
T RemainderTowardsZero(T a, T b, bool* bad) {
  if (b == 0) {
    *bad = true;
    return 0;
  }
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return 0;
  }
  return static_cast<T>(a % b);
}

}  // namespace millrace
