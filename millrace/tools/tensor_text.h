// Tensors as text: what commands print, and values that are given on the command line.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Element i: "1.5", "true", "\"text\"".
std::string ValueText(const Tensor& tensor, int64_t i);
// The rows of the last dimension, one per line; at most `max_values`, then a line that says how many more there are.
void PrintValues(const Tensor& tensor, int64_t max_values);

// A number, true, false, a string, or nested lists of these as JSON has them: [[1, 2], [3, 4]]. NaN and Infinity are
// strings: "nan", "-inf". What is not JSON is one string if the type is string. INVALID_ARGUMENT names a value that
// does not fit the type, and lists of different lengths.
StatusOr<Tensor> TensorFromText(absl::string_view text, DType dtype);

}  // namespace millrace
