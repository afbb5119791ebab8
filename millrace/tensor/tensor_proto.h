// Tensors as protobuf messages, both ways.
#pragma once

#include "millrace/proto/tensor.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Reads raw content and typed fields. With typed fields the last value repeats; none means zeros.
// Content wins over typed fields. INVALID_ARGUMENT says what is wrong with a malformed message:
// unknown dtype, negative or overflowing shape, content of the wrong length.
StatusOr<Tensor> TensorFromProto(const pb::TensorProto& proto,
                                 Allocator* allocator = Allocator::Heap());

// Writes raw content (strings too: all lengths as varints, then all bytes).
void TensorToProto(const Tensor& tensor, pb::TensorProto* proto);

// Writes the typed fields, values only as often as needed: for graphs that people read, and Const.
void TensorToProtoFields(const Tensor& tensor, pb::TensorProto* proto);

}  // namespace millrace
