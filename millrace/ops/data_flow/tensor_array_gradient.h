// Common to the gradients of TensorArray ops.
#pragma once

#include <string>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {

// The nodes of a gradient array, for gradient functions.
struct GradientArray {
  std::string version;  // version suffix of the ops: "V3"
  Endpoint handle;
  Endpoint flow;  // the flow after the array was created
};

// Adds the gradient array of the array `handle` for this AddGradients call, ordered after `flow`.
GradientArray MakeGradientArray(GradientContext& c, Endpoint handle, Endpoint flow);

// The known shape of the elements of the array in input 0.
PartialShape ElementShapeOf(const ShapeContext& c);

}  // namespace millrace
