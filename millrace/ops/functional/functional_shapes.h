// Shape functions of function calls.
#pragma once

#include "millrace/graph/shape_inference.h"

namespace millrace {

// The shapes declared by the attr output_shapes; unknown without it.
Status DeclaredShapes(ShapeContext& c);

}  // namespace millrace
