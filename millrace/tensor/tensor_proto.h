// Conversion between Tensor and TensorProto.
#pragma once

#include "millrace/proto/tensor.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Reads tensor_content, or else the typed fields, whose last value is repeated for the missing ones; no values at all
// mean zeros. INVALID_ARGUMENT, naming the problem, for a malformed message: unknown dtype, negative or overflowing
// shape, content of the wrong length.
StatusOr<Tensor> TensorFromProto(const pb::TensorProto& proto, Allocator* allocator = Allocator::Heap());

// Writes tensor_content; for strings, all lengths as varints followed by all bytes.
void TensorToProto(const Tensor& tensor, pb::TensorProto* proto);

// Writes the typed fields, without a repeated tail: for Const, and for graphs that people read.
void TensorToProtoFields(const Tensor& tensor, pb::TensorProto* proto);

}  // namespace millrace
