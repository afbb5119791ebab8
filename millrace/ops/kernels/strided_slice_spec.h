// The arguments of StridedSlice and related ops, resolved against a shape.
#pragma once

#include "absl/container/inlined_vector.h"
#include "millrace/base/status.h"
#include "millrace/graph/graph.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/tensor/shape.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class KernelContext;

struct StridedSliceMasks {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t ellipsis = 0;
  int64_t new_axis = 0;
  int64_t shrink_axis = 0;

  static StatusOr<StridedSliceMasks> Of(const Node& node);
};

// A slice of a tensor: begin, size and stride for each dimension of the tensor.
struct StridedSliceSpec {
  absl::InlinedVector<int64_t, 8> begin;  // within the tensor if size > 0
  absl::InlinedVector<int64_t, 8> stride;
  absl::InlinedVector<int64_t, 8> size;  // the number of elements; -1 if unknown
  // The result's shape: `size` without shrunk dimensions, plus new dimensions of size 1.
  PartialShape shape;
  // True if the slice is the whole tensor in order.
  bool is_identity = false;

  // The offset of the first element in a tensor of these row-major strides.
  int64_t Offset(absl::Span<const int64_t> strides) const;
};

// Resolves the arguments for a tensor of shape `input`, whose rank is known. Any of the three may be null; what depends
// on it is then unknown. `length` is their number of elements. INVALID_ARGUMENT, naming the dimension, if it is out of
// bounds.
StatusOr<StridedSliceSpec> ResolveStridedSlice(const PartialShape& input, int length, const Tensor* begin,
                                               const Tensor* end, const Tensor* strides,
                                               const StridedSliceMasks& masks);

// The same with everything known, for kernels.
StatusOr<StridedSliceSpec> ResolveStridedSlice(const Shape& input, const Tensor& begin, const Tensor& end,
                                               const Tensor& strides, const StridedSliceMasks& masks);

// `value` broadcast to the shape of a slice. INVALID_ARGUMENT if the shapes do not allow it.
StatusOr<Tensor> BroadcastToSlice(KernelContext& ctx, const Tensor& value, const Shape& slice);

}  // namespace millrace
