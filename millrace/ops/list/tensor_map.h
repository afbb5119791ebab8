// TensorMap: tensors by keys, which are tensors too, as a variant value.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/runtime/kernel.h"
#include "millrace/tensor/variant.h"

namespace millrace {

class TensorMap : public VariantValue {
 public:
  absl::string_view TypeName() const override { return "tensorflow::TensorMap"; }
  std::string DebugString() const override;
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override;

  struct Entry {
    Tensor key, value;
  };
  // Type, shape and elements of a key as text. INVALID_ARGUMENT for handles and variants, which cannot be keys.
  static StatusOr<std::string> KeyText(const Tensor& key);

  std::map<std::string, Entry> entries;  // by KeyText: the order does not depend on the order of insertion
};

// For AddN and ZerosLike over variants: the sum has the keys of both.
StatusOr<Variant> AddMaps(KernelContext& ctx, const TensorMap& a, const TensorMap& b);
StatusOr<Variant> ZerosLikeMap(KernelContext& ctx, const TensorMap& map);

}  // namespace millrace
