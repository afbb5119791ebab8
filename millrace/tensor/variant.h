// Elements of variant tensors: opaque values of C++ types.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"

namespace millrace {

class Tensor;

// The value of a variant: a list of tensors, a dataset, an iterator. Reference-counted and shared by copies of the
// variant; it may be modified only while it is not shared (IsUnique).
class VariantValue : public RefCounted {
 public:
  // TensorFlow's name of the type, which is part of the serialized form.
  virtual absl::string_view TypeName() const = 0;
  virtual std::string DebugString() const = 0;
  // Serializes the value as bytes and tensors, from which the type's VariantDecoder restores it. UNIMPLEMENTED for a
  // type that cannot leave its process.
  virtual Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const;
};

// An element; empty by default. Copies share the value.
class Variant {
 public:
  Variant() = default;
  explicit Variant(RefPtr<VariantValue> value) : value_(std::move(value)) {}

  bool empty() const { return !value_; }
  const RefPtr<VariantValue>& value() const { return value_; }
  // The value as a T; null if it is empty or of another type.
  template <typename T>
  const T* Get() const {
    return dynamic_cast<const T*>(value_.get());
  }
  // The same for modification; null also if the value is shared.
  template <typename T>
  T* GetUnique() {
    return value_ && value_->IsUnique() ? dynamic_cast<T*>(value_.get()) : nullptr;
  }
  std::string DebugString() const { return value_ ? value_->DebugString() : "empty"; }

 private:
  RefPtr<VariantValue> value_;
};

// Registers the deserializer of a type during static initialization:
//   static const VariantDecoder decoder("tensorflow::TensorList", DecodeTensorList);
class VariantDecoder {
 public:
  using Decode =
      std::function<StatusOr<RefPtr<VariantValue>>(const std::string& metadata, const std::vector<Tensor>& tensors)>;
  VariantDecoder(absl::string_view type_name, Decode decode);
  // UNIMPLEMENTED, naming the type, if it has no decoder.
  static StatusOr<Variant> Run(const std::string& type_name, const std::string& metadata,
                               const std::vector<Tensor>& tensors);
};

}  // namespace millrace
