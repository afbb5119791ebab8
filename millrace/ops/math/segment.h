// How rows are combined into segments: what the sorted and the unsorted segment ops share.
#pragma once

#include <limits>

#include "millrace/ops/kernels/elementwise.h"

namespace millrace {

template <typename T>
struct SegmentAdd {
  static constexpr bool kMean = false;
  static T Identity() { return T(0); }
  static T Gap() { return T(0); }
  static T Combine(T a, T b) { return static_cast<T>(a + b); }
};
template <typename T>
struct SegmentAverage : SegmentAdd<T> {
  static constexpr bool kMean = true;
};
template <typename T>
struct SegmentMultiply {
  static constexpr bool kMean = false;
  static T Identity() { return T(1); }
  static T Gap() { return T(1); }
  static T Combine(T a, T b) { return static_cast<T>(a * b); }
};
template <typename T>
struct SegmentGreatest {
  static constexpr bool kMean = false;
  static T Identity() { return std::numeric_limits<T>::lowest(); }
  static T Gap() { return T(0); }
  static T Combine(T a, T b) { return a > b ? a : b; }
};
template <typename T>
struct SegmentLeast {
  static constexpr bool kMean = false;
  static T Identity() { return std::numeric_limits<T>::max(); }
  static T Gap() { return T(0); }
  static T Combine(T a, T b) { return a < b ? a : b; }
};

}  // namespace millrace
