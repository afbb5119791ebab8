// Fuzzes TensorProto: whatever decodes must round-trip through both encodings.
#include <cstddef>
#include <cstdint>

#include "millrace/tensor/tensor_proto.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  pb::TensorProto proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return 0;
  // A few bytes may describe a tensor of any size; running out of memory is not a finding.
  StatusOr<Shape> shape = Shape::FromProto(proto.tensor_shape());
  if (shape.ok() && shape->num_elements() > (1 << 20)) return 0;
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  if (!tensor.ok()) return 0;
  tensor->DebugString();
  for (auto* encode : {TensorToProto, TensorToProtoFields}) {
    pb::TensorProto encoded;
    encode(*tensor, &encoded);
    StatusOr<Tensor> again = TensorFromProto(encoded);
    MR_CHECK(again.ok());
    MR_CHECK(again->dtype() == tensor->dtype() && again->shape() == tensor->shape());
    MR_CHECK(again->DebugString(100) == tensor->DebugString(100));
  }
  return 0;
}
