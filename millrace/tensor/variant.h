// Elements of variant tensors: values of C++ types that a graph passes along without looking inside.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"

namespace millrace {

class Tensor;

// What a variant holds: a list of tensors, a dataset, an iterator. Reference-counted and shared by copies of
// the variant; who changes one makes sure that nobody else looks at it (IsUnique).
class VariantValue : public RefCounted {
 public:
  // TensorFlow's name of the type, which travels on the wire.
  virtual absl::string_view TypeName() const = 0;
  virtual std::string DebugString() const = 0;
  // For the wire: bytes and tensors from which the decoder of this type makes the value again.
  // UNIMPLEMENTED for a type that stays in its process.
  virtual Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const;
};

// One element; empty at first. Copying shares the value.
class Variant {
 public:
  Variant() = default;
  explicit Variant(RefPtr<VariantValue> value) : value_(std::move(value)) {}

  bool empty() const { return !value_; }
  const RefPtr<VariantValue>& value() const { return value_; }
  // The value as a T, null when it is empty or of another type.
  template <typename T>
  const T* Get() const {
    return dynamic_cast<const T*>(value_.get());
  }
  // The same for changing it, null also when somebody else shares the value.
  template <typename T>
  T* GetUnique() {
    return value_ && value_->IsUnique() ? dynamic_cast<T*>(value_.get()) : nullptr;
  }
  std::string DebugString() const { return value_ ? value_->DebugString() : "empty"; }

 private:
  RefPtr<VariantValue> value_;
};

// How a type is read from the wire. Registered once, while the program starts:
//   static const VariantDecoder decoder("tensorflow::TensorList", DecodeTensorList);
class VariantDecoder {
 public:
  using Decode = std::function<StatusOr<RefPtr<VariantValue>>(const std::string& metadata,
                                                              const std::vector<Tensor>& tensors)>;
  VariantDecoder(absl::string_view type_name, Decode decode);
  // UNIMPLEMENTED names a type without a decoder.
  static StatusOr<Variant> Run(const std::string& type_name, const std::string& metadata,
                               const std::vector<Tensor>& tensors);
};

}  // namespace millrace
