// Truth values of tensors.
#pragma once

#include "millrace/tensor/tensor.h"

namespace millrace {

// A scalar number is true if it is not zero, a scalar string if it is not empty, any other tensor if it has elements.
// INVALID_ARGUMENT for a scalar of another type.
StatusOr<bool> ToBool(const Tensor& t);

}  // namespace millrace
