// The values of a tensor in a message of the first checkpoint format: all of them, and neither type nor shape.
#pragma once

#include "millrace/base/status.h"
#include "millrace/proto/tensor.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// OK for the types that the format has.
Status CheckLegacyType(DType dtype);
void PutLegacyValues(const Tensor& tensor, pb::TensorProto* proto);
// INVALID_ARGUMENT when there are not just as many values as the shape has elements.
StatusOr<Tensor> LegacyTensor(DType dtype, const Shape& shape, const pb::TensorProto& proto);

}  // namespace millrace
