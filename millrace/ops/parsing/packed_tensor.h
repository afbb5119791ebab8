// Tensors as elements of string or variant tensors.
#pragma once

#include "millrace/tensor/tensor.h"

namespace millrace {

// The tensor that PackTensor stored in element `at` of a string or variant tensor. INVALID_ARGUMENT if it is something
// else.
StatusOr<Tensor> UnpackTensor(const Tensor& packed, int64_t at);

// Stores the tensor in element `at` of `packed`: as a serialized TensorProto, or as a variant that shares the tensor's
// memory.
void PackTensor(Tensor tensor, Tensor* packed, int64_t at);

}  // namespace millrace
