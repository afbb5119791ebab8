// Copying boxes of elements between memories of any strides: what slices, transposes, tiles, pads and
// concatenations have in common.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// The box and how both sides walk it. Strides are in elements and may be negative; a source stride of
// 0 repeats, a target stride of 0 makes no sense. Any order of dimensions means the same copy.
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

// Copies the box whose first element is at from[from_offset] and to[to_offset], offsets in elements of
// `dtype`. The two memories do not overlap. Large copies are spread over the device's threads.
Status StridedCopy(KernelContext& ctx, DType dtype, CopyBox box, const void* from,
                   int64_t from_offset, void* to, int64_t to_offset);

// Copies n elements that are contiguous on both sides; assigns strings and handles.
void CopyElements(DType dtype, const void* from, int64_t from_offset, void* to, int64_t to_offset,
                  int64_t n);

}  // namespace millrace
