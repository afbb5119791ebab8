// Arithmetic on dimensions that may be unknown (-1), for shape functions.
#pragma once

#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/tensor/shape.h"

namespace millrace {

inline int64_t AddDims(int64_t a, int64_t b) { return a < 0 || b < 0 ? -1 : a + b; }
// Unknown also when the product overflows: the kernel will say so.
inline int64_t MulDims(int64_t a, int64_t b) {
  int64_t product;
  if (a == 0 || b == 0) return 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return -1;
  return product;
}

// The one that is known; INVALID_ARGUMENT if both are known and differ.
inline StatusOr<int64_t> MergeDims(int64_t a, int64_t b) {
  if (a >= 0 && b >= 0 && a != b) {
    return InvalidArgument("Dimensions must be equal, but are ", a, " and ", b);
  }
  return a >= 0 ? a : b;
}

// Concatenates two shapes; of unknown rank if either is.
inline PartialShape JoinShapes(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank() || !b.known_rank()) return PartialShape();
  PartialShape joined = a;
  for (int64_t d : b.dims()) joined.AddDim(d);
  return joined;
}

// Dimensions [begin, end) of a shape of known rank.
inline PartialShape SubShape(const PartialShape& shape, int begin, int end) {
  return PartialShape(shape.dims().subspan(begin, end - begin));
}

}  // namespace millrace
