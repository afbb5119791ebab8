// Human-readable text of tensors for messages.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/tensor/tensor.h"

namespace millrace {

// At most `max_entries` elements (all if negative), then "...": a scalar as "1", a vector as "1 2 3", a matrix as "[1
// 2][3 4]". Numbers have enough digits to round-trip, strings are escaped, and a complex number is "?".
std::string SummarizeValues(const Tensor& tensor, int64_t max_entries);

}  // namespace millrace
