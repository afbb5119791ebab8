// NumPy's file format .npy: one array.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Accepts any bytes. Reads booleans, integers, floats and complex numbers, little-endian and in C order.
// INVALID_ARGUMENT for anything else, DATA_LOSS for a file that is truncated.
StatusOr<Tensor> ParseNpy(absl::string_view bytes);

// INVALID_ARGUMENT for types that NumPy does not have (strings, bfloat16, handles).
StatusOr<std::string> FormatNpy(const Tensor& tensor);

}  // namespace millrace
