// Shapes of ops over batches of matrices.
#pragma once

#include "millrace/graph/shape_inference.h"

namespace millrace {

// Input i as square matrices in its last two dimensions, which must be equal as far as known.
inline StatusOr<PartialShape> SquareMatrices(ShapeContext& c, int i) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(i, 2));
  if (!shape.known_rank()) return shape;
  const int rank = shape.rank();
  const int64_t rows = shape.dim(rank - 2), columns = shape.dim(rank - 1);
  if (rows >= 0 && columns >= 0 && rows != columns) {
    return InvalidArgument("Input matrix must be square, but got: ", rows, " != ", columns);
  }
  shape.set_dim(rank - 2, std::max(rows, columns));
  shape.set_dim(rank - 1, std::max(rows, columns));
  return shape;
}

// Output 0 has the shape of input 0.
inline Status SquareMatricesShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, SquareMatrices(c, 0));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace millrace
