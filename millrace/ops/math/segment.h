// Combining rows into segments, shared by the sorted, sparse and unsorted segment ops.
#pragma once

#include <limits>

#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/runtime/kernel.h"

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
  static T Combine(T a, T b) { return GreaterOfFn()(b, a); }
};
template <typename T>
struct SegmentLeast {
  static constexpr bool kMean = false;
  static T Identity() { return std::numeric_limits<T>::max(); }
  static T Gap() { return T(0); }
  static T Combine(T a, T b) { return LesserOfFn()(b, a); }
};

// Of the results of the unsorted ops. INVALID_ARGUMENT if their inputs' shapes do not fit.
StatusOr<Shape> ShapeOfSegments(const KernelContext& ctx);

// INVALID_ARGUMENT unless the ids are sorted and not negative.
template <typename Id>
Status CheckSortedIds(const Id* ids, int64_t n) {
  // A vectorised check of all ids; the offending one is located only on failure.
  bool bad = n > 0 && ids[0] < 0;
  for (int64_t i = 1; i < n; ++i) bad |= ids[i] < ids[i - 1];
  if (!bad) return absl::OkStatus();
  // The last id says how many segments there are.
  const int64_t last = ids[n - 1];
  if (last < 0) return InvalidArgument("segment ids must be >= 0");
  for (int64_t i = 0; i < n; ++i) {
    if (i + 1 < n && ids[i + 1] < ids[i]) break;
    if (ids[i] >= 0 && ids[i] <= last) continue;
    return InvalidArgument("Segment id ", static_cast<int64_t>(ids[i]), " out of range [0, ", last + 1,
                           "), possibly because 'segment_ids' input is not sorted.");
  }
  return InvalidArgument("segment ids are not increasing");
}

}  // namespace millrace
