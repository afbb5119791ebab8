#include "millrace/ops/parsing/packed_tensor.h"

#include "millrace/tensor/tensor_proto.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

// A tensor as an element of a variant tensor.
class TensorValue : public VariantValue {
 public:
  explicit TensorValue(Tensor tensor) : tensor_(std::move(tensor)) {}
  const Tensor& tensor() const { return tensor_; }
  absl::string_view TypeName() const override { return "tensorflow::Tensor"; }
  std::string DebugString() const override { return tensor_.DebugString(); }
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override {
    metadata->clear();
    *tensors = {tensor_};
    return absl::OkStatus();
  }

 private:
  const Tensor tensor_;
};

const VariantDecoder decoder("tensorflow::Tensor",
                             [](const std::string&,
                                const std::vector<Tensor>& tensors) -> StatusOr<RefPtr<VariantValue>> {
                               if (tensors.size() != 1) {
                                 return InvalidArgument("a variant of one tensor came with ", tensors.size());
                               }
                               return RefPtr<VariantValue>(MakeRef<TensorValue>(tensors[0]));
                             });

}  // namespace

StatusOr<Tensor> UnpackTensor(const Tensor& packed, int64_t at) {
  if (packed.dtype() == DType::kVariant) {
    const TensorValue* value = packed.data<Variant>()[at].Get<TensorValue>();
    if (value == nullptr) return InvalidArgument("Could not get a tensor from element ", at, " of serialized_sparse");
    return value->tensor();
  }
  pb::TensorProto proto;
  if (!proto.ParseFromString(packed.data<std::string>()[at])) {
    return InvalidArgument("Could not parse serialized proto: element ", at,
                           " of serialized_sparse is not a TensorProto");
  }
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  if (!tensor.ok()) return InvalidArgument("Could not construct tensor from proto: ", tensor.status().message());
  return tensor;
}

void PackTensor(Tensor tensor, Tensor* packed, int64_t at) {
  if (packed->dtype() == DType::kVariant) {
    packed->data<Variant>()[at] = Variant(MakeRef<TensorValue>(std::move(tensor)));
    return;
  }
  pb::TensorProto proto;
  TensorToProto(tensor, &proto);
  proto.SerializeToString(&packed->data<std::string>()[at]);
}

}  // namespace millrace
