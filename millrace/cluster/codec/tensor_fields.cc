#include "millrace/cluster/codec/tensor_fields.h"

#include "absl/strings/escaping.h"

namespace millrace {
namespace {

// "feed 0 'x:0' of RunStepRequest: ". The name may contain any bytes.
Status Named(const TensorRole& role, size_t index, const std::string* name, const Status& status) {
  if (status.ok()) return status;
  const std::string quoted = name == nullptr ? "" : absl::StrCat(" '", absl::Utf8SafeCHexEscape(*name), "'");
  return WithPrefix(absl::StrCat(role.what, " ", index, quoted, " of ", role.message, ": "), status);
}

}  // namespace

Status WriteTensors(const TensorRole& role, const NamedTensors& tensors, MessageWriter* out) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    if (Status s = WriteNamedTensor(role.field, name, tensor, out); !s.ok()) return Named(role, i, &name, s);
  }
  return absl::OkStatus();
}

Status WriteTensors(const TensorRole& role, const std::vector<Tensor>& tensors, MessageWriter* out) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (Status s = WriteTensor(role.field, tensors[i], out); !s.ok()) return Named(role, i, nullptr, s);
  }
  return absl::OkStatus();
}

Status ReadTensor(const TensorRole& role, FieldReader* in, RepeatLimit* repeats, NamedTensors* tensors) {
  auto& [name, tensor] = tensors->emplace_back();
  TensorField value;
  FieldReader item = in->Enter();
  while (item.Next()) {
    switch (item.tag()) {
      case BytesTag(1):
        item.ReadString(&name);
        break;
      case BytesTag(2):
        value.Scan(&item);
        break;
      default:
        item.Skip();
    }
  }
  const size_t index = tensors->size() - 1;
  if (!item.ok()) {
    in->Fail();
    return Named(role, index, &name, item.End("NamedTensorProto"));
  }
  return Named(role, index, &name, value.Read(Allocator::Heap(), repeats, &tensor));
}

Status ReadTensor(const TensorRole& role, FieldReader* in, RepeatLimit* repeats, std::vector<Tensor>* tensors) {
  const size_t index = tensors->size();
  TensorField value;
  value.Scan(in);
  if (!in->ok()) return Named(role, index, nullptr, in->End("TensorProto"));
  return Named(role, index, nullptr, value.Read(Allocator::Heap(), repeats, &tensors->emplace_back()));
}

Status StatusFromFields(uint64_t code, const std::string& message) {
  const int number = static_cast<int32_t>(code);
  if (number >= 0 && number <= 16) return Status(static_cast<absl::StatusCode>(number), message);
  return absl::UnknownError(absl::StrCat("(code ", number, ") ", message));
}

}  // namespace millrace
