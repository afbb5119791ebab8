// Strided copies of boxes of elements, shared by slices, transposes, tiles, pads and concatenations.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// The box and the strides of both sides, in elements. Strides may be negative; a source stride of 0 repeats, a target
// stride must not be 0. The order of dimensions does not matter.
struct CopyBox {
  struct Dim {
    int64_t size;
    int64_t from;
    int64_t to;
  };
  absl::InlinedVector<Dim, 8> dims;

  void Add(int64_t size, int64_t from, int64_t to) { dims.push_back({size, from, to}); }
};

// Row-major strides of a shape.
absl::InlinedVector<int64_t, 8> RowMajorStrides(absl::Span<const int64_t> dims);

// Copies the box whose first element is at from[from_offset] and to[to_offset]; offsets are in elements of `dtype`.
// Source and target must not overlap. Large copies use the device's threads.
Status StridedCopy(KernelContext& ctx, DType dtype, CopyBox box, const void* from, int64_t from_offset, void* to,
                   int64_t to_offset);

}  // namespace millrace
