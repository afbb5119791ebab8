#include "millrace/tensor/variant.h"

#include "absl/container/flat_hash_map.h"
#include "millrace/tensor/tensor.h"

namespace millrace {
namespace {

absl::flat_hash_map<std::string, VariantDecoder::Decode>& Decoders() {
  static auto* const decoders = new absl::flat_hash_map<std::string, VariantDecoder::Decode>;
  return *decoders;
}

}  // namespace

Status VariantValue::Encode(std::string*, std::vector<Tensor>*) const {
  return Unimplemented("a variant of type ", TypeName(), " cannot leave its process");
}

VariantDecoder::VariantDecoder(absl::string_view type_name, Decode decode) {
  MR_CHECK(Decoders().emplace(std::string(type_name), std::move(decode)).second);
}

StatusOr<Variant> VariantDecoder::Run(const std::string& type_name, const std::string& metadata,
                                      const std::vector<Tensor>& tensors) {
  if (type_name.empty()) return Variant();
  const auto at = Decoders().find(type_name);
  if (at == Decoders().end()) return Unimplemented("variants of type '", type_name, "' are not known");
  MR_ASSIGN_OR_RETURN(RefPtr<VariantValue> value, at->second(metadata, tensors));
  return Variant(std::move(value));
}

}  // namespace millrace
