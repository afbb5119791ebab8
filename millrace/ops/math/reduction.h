// What the reducing ops have in common beside their kernels: shapes and gradients.
#pragma once

#include <optional>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {

// Input 0 less the axes of input 1, or with 1 in their place where the attr keep_dims says so.
Status ReductionShape(ShapeContext& c);

// A reducing node as its gradient sees it.
class ReducedInput {
 public:
  explicit ReducedInput(GradientContext& c);

  // `e`, of the node's output shape, so that it broadcasts against the node's input.
  Endpoint Expand(Endpoint e);
  // The same, at the input's full shape.
  Endpoint BroadcastToInput(Endpoint e);
  // How many input elements make one output element, as a scalar of type `dtype`.
  Endpoint Count(DType dtype);

  // The axes, positive, where they and the input's rank are known before the graph runs.
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
