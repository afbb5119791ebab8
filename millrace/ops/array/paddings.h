// The [rank, 2] paddings argument of the padding ops.
#pragma once

#include "absl/container/inlined_vector.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct PadWidths {
  int64_t before;
  int64_t after;
};
using Paddings = absl::InlinedVector<PadWidths, 8>;

// INVALID_ARGUMENT unless of shape [rank, 2] and not negative.
StatusOr<Paddings> ReadPaddings(const Tensor& tensor, int rank);

// INVALID_ARGUMENT if the result is too large.
StatusOr<Shape> PaddedShape(const Shape& shape, const Paddings& paddings);

// Shape function: input 0 padded by input 1.
Status PadShape(ShapeContext& c);

}  // namespace millrace
