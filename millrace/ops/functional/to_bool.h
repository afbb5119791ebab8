// When a condition counts as true.
#pragma once

#include "millrace/tensor/tensor.h"

namespace millrace {

// A scalar number is true when it is not zero, a scalar string when it is not empty, any other tensor when it
// has elements. INVALID_ARGUMENT for a scalar of another type.
StatusOr<bool> ToBool(const Tensor& t);

}  // namespace millrace
