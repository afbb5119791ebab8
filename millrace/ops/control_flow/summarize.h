// Tensors as people read them in messages.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/tensor/tensor.h"

namespace millrace {

// At most `max_entries` elements (all when negative), then "...": a scalar as it is, a vector as
// "1 2 3", a matrix as "[1 2][3 4]". Numbers have the digits that give them back, strings are escaped, and a
// complex number is "?".
std::string SummarizeValues(const Tensor& tensor, int64_t max_entries);

}  // namespace millrace
