#include "millrace/graph/attr.h"

#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace {

AttrInit::AttrInit(const Tensor& v) { TensorToProtoFields(v, value_.mutable_tensor()); }

AttrInit::AttrInit(absl::Span<const int64_t> v) { value_.mutable_list()->mutable_i()->Add(v.begin(), v.end()); }
AttrInit::AttrInit(const std::vector<int>& v) { value_.mutable_list()->mutable_i()->Add(v.begin(), v.end()); }
AttrInit::AttrInit(const std::vector<float>& v) { value_.mutable_list()->mutable_f()->Add(v.begin(), v.end()); }
AttrInit::AttrInit(const std::vector<bool>& v) {
  auto* list = value_.mutable_list();
  for (bool b : v) list->add_b(b);
}
AttrInit::AttrInit(const std::vector<DType>& v) {
  auto* list = value_.mutable_list();
  for (DType t : v) list->add_type(static_cast<pb::DataType>(t));
}
AttrInit::AttrInit(const std::vector<std::string>& v) {
  auto* list = value_.mutable_list();
  for (const std::string& s : v) list->add_s(s);
}
AttrInit::AttrInit(const std::vector<PartialShape>& v) {
  auto* list = value_.mutable_list();
  for (const PartialShape& shape : v) shape.ToProto(list->add_shape());
}

namespace {

Status NotA(const char* kind, const pb::AttrValue& value) {
  return InvalidArgument("is ", AttrToString(value), ", not ", kind);
}

}  // namespace

template <>
StatusOr<bool> AttrAs<bool>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kB) return NotA("a bool", value);
  return value.b();
}

template <>
StatusOr<int64_t> AttrAs<int64_t>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kI) return NotA("an int", value);
  return value.i();
}

template <>
StatusOr<int32_t> AttrAs<int32_t>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kI) return NotA("an int", value);
  if (value.i() < std::numeric_limits<int32_t>::min() || value.i() > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("is ", value.i(), ", out of range for int32");
  }
  return static_cast<int32_t>(value.i());
}

template <>
StatusOr<float> AttrAs<float>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kF) return NotA("a float", value);
  return value.f();
}

template <>
StatusOr<std::string> AttrAs<std::string>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kS) return NotA("a string", value);
  return value.s();
}

template <>
StatusOr<DType> AttrAs<DType>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kType) return NotA("a type", value);
  return static_cast<DType>(value.type());
}

template <>
StatusOr<Shape> AttrAs<Shape>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kShape) return NotA("a shape", value);
  return Shape::FromProto(value.shape());
}

template <>
StatusOr<PartialShape> AttrAs<PartialShape>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kShape) return NotA("a shape", value);
  return PartialShape::FromProto(value.shape());
}

template <>
StatusOr<Tensor> AttrAs<Tensor>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kTensor) return NotA("a tensor", value);
  return TensorFromProto(value.tensor());
}

template <>
StatusOr<pb::NameAttrList> AttrAs<pb::NameAttrList>(const pb::AttrValue& value) {
  if (value.value_case() != pb::AttrValue::kFunc) return NotA("a func", value);
  return value.func();
}

template <>
StatusOr<std::vector<int64_t>> AttrAs<std::vector<int64_t>>(const pb::AttrValue& value) {
  if (!value.has_list()) return NotA("a list(int)", value);
  return std::vector<int64_t>(value.list().i().begin(), value.list().i().end());
}

template <>
StatusOr<std::vector<int32_t>> AttrAs<std::vector<int32_t>>(const pb::AttrValue& value) {
  if (!value.has_list()) return NotA("a list(int)", value);
  std::vector<int32_t> result;
  result.reserve(value.list().i_size());
  for (int64_t i : value.list().i()) {
    if (i < std::numeric_limits<int32_t>::min() || i > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("has the item ", i, ", out of range for int32");
    }
    result.push_back(static_cast<int32_t>(i));
  }
  return result;
}

template <>
StatusOr<std::vector<float>> AttrAs<std::vector<float>>(const pb::AttrValue& value) {
  if (!value.has_list()) return NotA("a list(float)", value);
  return std::vector<float>(value.list().f().begin(), value.list().f().end());
}

template <>
StatusOr<std::vector<bool>> AttrAs<std::vector<bool>>(const pb::AttrValue& value) {
  if (!value.has_list()) return NotA("a list(bool)", value);
  return std::vector<bool>(value.list().b().begin(), value.list().b().end());
}

template <>
StatusOr<std::vector<std::string>> AttrAs<std::vector<std::string>>(const pb::AttrValue& value) {
  if (!value.has_list()) return NotA("a list(string)", value);
  return std::vector<std::string>(value.list().s().begin(), value.list().s().end());
}

template <>
StatusOr<std::vector<DType>> AttrAs<std::vector<DType>>(const pb::AttrValue& value) {
  if (!value.has_list()) return NotA("a list(type)", value);
  std::vector<DType> result;
  result.reserve(value.list().type_size());
  for (int type : value.list().type()) result.push_back(static_cast<DType>(type));
  return result;
}

template <>
StatusOr<std::vector<PartialShape>> AttrAs<std::vector<PartialShape>>(const pb::AttrValue& value) {
  if (!value.has_list()) return NotA("a list(shape)", value);
  std::vector<PartialShape> result;
  result.reserve(value.list().shape_size());
  for (const auto& proto : value.list().shape()) {
    MR_ASSIGN_OR_RETURN(PartialShape shape, PartialShape::FromProto(proto));
    result.push_back(std::move(shape));
  }
  return result;
}

namespace {

std::string ShapeText(const pb::TensorShapeProto& proto) {
  StatusOr<PartialShape> shape = PartialShape::FromProto(proto);
  return shape.ok() ? shape->ToString() : "<bad shape>";
}

std::string TensorText(const pb::TensorProto& proto) {
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  return tensor.ok() ? tensor->DebugString() : "<bad tensor>";
}

std::string Quote(const std::string& s) { return absl::StrCat("\"", absl::CEscape(s), "\""); }

std::string TypeText(int type) { return DTypeName(static_cast<DType>(type)); }

std::string ListText(const pb::AttrValue::ListValue& list) {
  std::vector<std::string> items;
  for (const auto& v : list.s()) items.push_back(Quote(v));
  for (const auto& v : list.i()) items.push_back(absl::StrCat(v));
  for (const auto& v : list.f()) items.push_back(absl::StrCat(v));
  for (const auto& v : list.b()) items.push_back(v ? "true" : "false");
  for (const auto& v : list.type()) items.push_back(TypeText(v));
  for (const auto& v : list.shape()) items.push_back(ShapeText(v));
  for (const auto& v : list.tensor()) items.push_back(TensorText(v));
  for (const auto& v : list.func()) items.push_back(v.name());
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

}  // namespace

std::string AttrToString(const pb::AttrValue& value) {
  switch (value.value_case()) {
    case pb::AttrValue::kS:
      return Quote(value.s());
    case pb::AttrValue::kI:
      return absl::StrCat(value.i());
    case pb::AttrValue::kF:
      return absl::StrCat(value.f());
    case pb::AttrValue::kB:
      return value.b() ? "true" : "false";
    case pb::AttrValue::kType:
      return TypeText(value.type());
    case pb::AttrValue::kShape:
      return ShapeText(value.shape());
    case pb::AttrValue::kTensor:
      return TensorText(value.tensor());
    case pb::AttrValue::kList:
      return ListText(value.list());
    case pb::AttrValue::kFunc:
      return value.func().name();
    case pb::AttrValue::kPlaceholder:
      return absl::StrCat("$", value.placeholder());
    case pb::AttrValue::VALUE_NOT_SET:
      break;
  }
  return "<not set>";
}

}  // namespace millrace
