// Typed access to node attributes.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/proto/graph.pb.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/shape.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

namespace pb = ::tensorflow;

// Converts any C++ value that an attr can hold to a pb::AttrValue. Implicit, so that a call reads
//   b.Op("MatMul", {x, w}, {{"transpose_a", true}})
class AttrInit {
 public:
  AttrInit(pb::AttrValue value) : value_(std::move(value)) {}                    // NOLINT
  AttrInit(bool v) { value_.set_b(v); }                                          // NOLINT
  AttrInit(int v) { value_.set_i(v); }                                           // NOLINT
  AttrInit(int64_t v) { value_.set_i(v); }                                       // NOLINT
  AttrInit(float v) { value_.set_f(v); }                                         // NOLINT
  AttrInit(double v) { value_.set_f(static_cast<float>(v)); }                    // NOLINT
  AttrInit(const char* v) { value_.set_s(v); }                                   // NOLINT
  AttrInit(std::string v) { value_.set_s(std::move(v)); }                        // NOLINT
  AttrInit(absl::string_view v) { value_.set_s(std::string(v)); }                // NOLINT
  AttrInit(DType v) { value_.set_type(static_cast<pb::DataType>(v)); }           // NOLINT
  AttrInit(const Shape& v) { v.ToProto(value_.mutable_shape()); }                // NOLINT
  AttrInit(const PartialShape& v) { v.ToProto(value_.mutable_shape()); }         // NOLINT
  AttrInit(const Tensor& v);                                                     // NOLINT
  AttrInit(absl::Span<const int64_t> v);                                         // NOLINT
  AttrInit(const std::vector<int64_t>& v) : AttrInit(absl::MakeConstSpan(v)) {}  // NOLINT
  AttrInit(const std::vector<int>& v);                                           // NOLINT
  AttrInit(const std::vector<float>& v);                                         // NOLINT
  AttrInit(const std::vector<bool>& v);                                          // NOLINT
  AttrInit(const std::vector<DType>& v);                                         // NOLINT
  AttrInit(const std::vector<std::string>& v);                                   // NOLINT
  AttrInit(const std::vector<PartialShape>& v);                                  // NOLINT

  const pb::AttrValue& value() const& { return value_; }
  pb::AttrValue&& value() && { return std::move(value_); }

 private:
  pb::AttrValue value_;
};

using AttrList = std::vector<std::pair<std::string, AttrInit>>;

// The value as T: bool, int32_t, int64_t, float, std::string, DType, Shape, PartialShape, Tensor,
// std::vector<int64_t|int32_t|float|bool|std::string|DType|PartialShape>, pb::NameAttrList. INVALID_ARGUMENT if the
// attribute is of another kind.
template <typename T>
StatusOr<T> AttrAs(const pb::AttrValue& value);

// "3", "float", "[1, 2]", "\"same\"": for messages.
std::string AttrToString(const pb::AttrValue& value);

}  // namespace millrace
