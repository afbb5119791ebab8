// How the operands of Select and ClipByValue fit, for kernels on the CPU and on a GPU.
#pragma once

#include "millrace/base/status.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// The shape as which Select's condition is broadcast: it may be a scalar, or a vector that selects whole rows of the
// first dimension. INVALID_ARGUMENT if it does not fit.
StatusOr<Shape> ShapeOfCondition(const Shape& condition, const Shape& a, const Shape& b);

// INVALID_ARGUMENT unless each bound of ClipByValue is a scalar or of the input's shape.
Status CheckBounds(const Shape& x, const Shape& low, const Shape& high);

}  // namespace millrace
