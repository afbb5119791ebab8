// Shape functions shared by the list ops.
#pragma once

#include "millrace/graph/shape_inference.h"

namespace millrace {

// An input tensor as the shape of elements, as far as it is known.
inline PartialShape ElementShapeInput(const ShapeContext& c, int i) {
  const StatusOr<PartialShape> shape = c.ShapeFromInput(i);
  const bool is_vector = c.input(i).known_rank() && c.input(i).rank() == 1;
  return shape.ok() && is_vector ? *shape : PartialShape();
}

// Adds a first dimension.
inline PartialShape Rows(int64_t n, const PartialShape& shape) {
  if (!shape.known_rank()) return shape;
  PartialShape rows = PartialShape({n});
  for (const int64_t d : shape.dims()) rows.AddDim(d);
  return rows;
}

}  // namespace millrace
