// Tensors as elements of string or variant tensors.
#pragma once

#include "millrace/tensor/tensor.h"

namespace millrace {

// Element `at` of a string or variant tensor, as the tensor that PackTensor put there. INVALID_ARGUMENT when it is
// something else.
StatusOr<Tensor> UnpackTensor(const Tensor& packed, int64_t at);

// Makes element `at` of `packed` the bytes of a TensorProto, or a variant that shares the tensor's memory.
void PackTensor(Tensor tensor, Tensor* packed, int64_t at);

}  // namespace millrace
