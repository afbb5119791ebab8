// Compares a tensor with the expected one.
#pragma once

#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace::golden {

// OK if dtype and shape are the same and every element agrees: |got - want| <= atol + rtol * |want| for floats, NaN
// equal to NaN; everything else exactly. With both tolerances 0, floats agree bit for bit (any NaN with any NaN).
// Otherwise the message names the first element that differs.
Status Compare(const Tensor& want, const Tensor& got, double rtol, double atol);

// Element i of a floating tensor.
double ElementAsDouble(const Tensor& tensor, int64_t i);

}  // namespace millrace::golden
