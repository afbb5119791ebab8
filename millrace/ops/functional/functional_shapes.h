// Shapes of what functions give.
#pragma once

#include "millrace/graph/shape_inference.h"

namespace millrace {

// What the attr output_shapes declares; nothing is known without it.
Status DeclaredShapes(ShapeContext& c);

}  // namespace millrace
