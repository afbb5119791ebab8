// What the gradients of array ops have in common.
#pragma once

#include <string>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {

// The array in which the gradients of another are summed up, as a gradient function sees it.
struct GradientArray {
  std::string version;  // of the ops: "V3"
  Endpoint handle;
  Endpoint flow;  // once the array is there
};

// The gradient array of that behind `handle`, for this call of AddGradients, once `flow` has come.
GradientArray MakeGradientArray(GradientContext& c, Endpoint handle, Endpoint flow);

// What is known of the elements of the array behind input 0.
PartialShape ElementShapeOf(const ShapeContext& c);

}  // namespace millrace
