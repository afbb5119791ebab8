// Functions used in the optimizers' formulas.
#pragma once

#include <cmath>
#include <complex>

namespace millrace::element_math {

template <typename T>
T Square(T x) {
  return x * x;
}
template <typename T>
T Sqrt(T x) {
  return std::sqrt(x);
}
template <typename T>
T Rsqrt(T x) {
  return T(1) / std::sqrt(x);
}
template <typename T>
T Sign(T x) {
  return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x);
}
template <typename T>
T Max(T a, T b) {
  return a > b ? a : b;
}
// Soft thresholding: moves x towards zero by `by`, but not past it.
template <typename T>
T Shrink(T x, T by) {
  return Sign(x) * Max(std::abs(x) - by, T(0));
}

}  // namespace millrace::element_math
