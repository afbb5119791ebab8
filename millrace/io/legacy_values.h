// A tensor's values as the first checkpoint format stores them: a TensorProto with all values in typed fields and
// without dtype and shape.
#pragma once

#include "millrace/base/status.h"
#include "millrace/proto/tensor.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// OK for the types that the format supports.
Status CheckLegacyType(DType dtype);
void PutLegacyValues(const Tensor& tensor, pb::TensorProto* proto);
// INVALID_ARGUMENT if the number of values differs from the number of elements of the shape.
StatusOr<Tensor> LegacyTensor(DType dtype, const Shape& shape, const pb::TensorProto& proto);

}  // namespace millrace
