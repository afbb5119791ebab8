// What Slice and what is fused with it have in common: where the box lies.
#pragma once

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"

namespace millrace {

// Turns a size of -1 into what is left and checks that the box lies inside dimension i of `dim`.
StatusOr<int64_t> SliceSize(int i, int64_t begin, int64_t size, int64_t dim);

// The box that begin and size cut out of a tensor of shape `whole`, whose first corner is *begin.
StatusOr<Shape> SlicedShape(const Shape& whole, const Tensor& begin_tensor, const Tensor& size_tensor, IntList* begin);

// Sets output 0 to what the vectors in inputs `begin` and `size` cut out of `whole`.
Status SetSlicedShape(ShapeContext& c, const PartialShape& whole, int begin, int size);

}  // namespace millrace
