// Tensors with fewer bits, for the way.
#pragma once

#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace::hvd {

// float and double as half; other types as they are.
Tensor Compressed(const Tensor& tensor);
// Half as `dtype`; what has that type already, as it is.
Tensor Decompressed(Tensor tensor, DType dtype);

}  // namespace millrace::hvd
