// Bounds of a slice, shared by Slice and the ops that are fused with it.
#pragma once

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"

namespace millrace {

// Replaces a size of -1 by the remaining size, and checks that the slice is within dimension i, which has size `dim`.
StatusOr<int64_t> SliceSize(int i, int64_t begin, int64_t size, int64_t dim);

// The shape of the slice given by begin and size of a tensor of shape `whole`; *begin is its first element.
StatusOr<Shape> SlicedShape(const Shape& whole, const Tensor& begin_tensor, const Tensor& size_tensor, IntList* begin);

// Sets output 0 to the shape of the slice of `whole` given by the inputs `begin` and `size`.
Status SetSlicedShape(ShapeContext& c, const PartialShape& whole, int begin, int size);

}  // namespace millrace
