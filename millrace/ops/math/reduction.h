// Shape functions and gradients shared by the reduction ops.
#pragma once

#include <optional>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {

// The shape of input 0 without the axes of input 1, or with size 1 there if keep_dims.
Status ReductionShape(ShapeContext& c);

// A reduction node, for its gradient function.
class ReducedInput {
 public:
  explicit ReducedInput(GradientContext& c);

  // Reshapes `e`, of the node's output shape, so that it broadcasts against the node's input.
  Endpoint Expand(Endpoint e);
  // The same, broadcast to the input's full shape.
  Endpoint BroadcastToInput(Endpoint e);
  // The number of input elements per output element, as a scalar of type `dtype`.
  Endpoint Count(DType dtype);

  // The non-negative axes, if they and the input's rank are statically known.
  const std::optional<std::vector<int32_t>>& axes() const { return axes_; }
  // The input's shape as a tensor of int32.
  Endpoint input_shape();

 private:
  Endpoint KeptShape();

  GradientContext& c_;
  std::optional<std::vector<int32_t>> axes_;
  Endpoint input_shape_;
  Endpoint kept_shape_;
};

}  // namespace millrace
