// Optional: a tuple of tensors, or nothing, as a variant value.
#pragma once

#include <optional>
#include <vector>

#include "millrace/runtime/kernel.h"
#include "millrace/tensor/variant.h"

namespace millrace {

class OptionalValue : public VariantValue {
 public:
  OptionalValue() = default;
  explicit OptionalValue(std::vector<Tensor> components) : components(std::move(components)) {}

  absl::string_view TypeName() const override { return "tensorflow::data::Optional"; }
  std::string DebugString() const override;
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override;

  std::optional<std::vector<Tensor>> components;  // none: there is no value
};

// For AddN and ZerosLike over variants: component by component; nothing and nothing is nothing.
StatusOr<Variant> AddOptionals(KernelContext& ctx, const OptionalValue& a, const OptionalValue& b);
StatusOr<Variant> ZerosLikeOptional(KernelContext& ctx, const OptionalValue& v);

}  // namespace millrace
