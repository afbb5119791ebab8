#include "millrace/io/legacy_values.h"

#include <complex>

#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Calls fn(field, TypeTag<T>) with the message's field for elements of `dtype` and their C++ type.
template <typename Proto, typename Fn>
bool WithField(DType dtype, Proto& proto, Fn&& fn) {
  switch (UnquantizedType(dtype)) {
    case DType::kFloat:
      return fn(proto.float_val(), TypeTag<float>{}), true;
    case DType::kDouble:
      return fn(proto.double_val(), TypeTag<double>{}), true;
    case DType::kInt32:
      return fn(proto.int_val(), TypeTag<int32_t>{}), true;
    case DType::kUInt8:
      return fn(proto.int_val(), TypeTag<uint8_t>{}), true;
    case DType::kInt16:
      return fn(proto.int_val(), TypeTag<int16_t>{}), true;
    case DType::kInt8:
      return fn(proto.int_val(), TypeTag<int8_t>{}), true;
    case DType::kUInt16:
      return fn(proto.int_val(), TypeTag<uint16_t>{}), true;
    case DType::kInt64:
      return fn(proto.int64_val(), TypeTag<int64_t>{}), true;
    case DType::kBool:
      return fn(proto.bool_val(), TypeTag<bool>{}), true;
    case DType::kHalf:
      return fn(proto.half_val(), TypeTag<uint16_t>{}), true;
    case DType::kString:
      return fn(proto.string_val(), TypeTag<std::string>{}), true;
    // A complex number is two values.
    case DType::kComplex64:
      return fn(proto.scomplex_val(), TypeTag<float>{}), true;
    case DType::kComplex128:
      return fn(proto.dcomplex_val(), TypeTag<double>{}), true;
    default:
      return false;
  }
}

int64_t ValuesOf(DType dtype, const Shape& shape) { return shape.num_elements() * (IsComplex(dtype) ? 2 : 1); }

}  // namespace

Status CheckLegacyType(DType dtype) {
  pb::TensorProto none;
  if (WithField(dtype, none, [](const auto&, auto) {})) return absl::OkStatus();
  if (dtype == DType::kBFloat16) return Unimplemented("Saving data type ", dtype, " not yet supported");
  return InvalidArgument("Tensor slice serialization not implemented for dtype ", dtype);
}

void PutLegacyValues(const Tensor& tensor, pb::TensorProto* proto) {
  WithField(tensor.dtype(), *proto, [&](const auto& field, auto tag) {
    using T = typename decltype(tag)::type;
    auto& out = const_cast<std::remove_cvref_t<decltype(field)>&>(field);
    const T* const values = tensor.raw<T>();
    const int64_t n = ValuesOf(tensor.dtype(), tensor.shape());
    out.Reserve(static_cast<int>(n));
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, std::string>) {
        *out.Add() = values[i];
      } else {
        out.Add(values[i]);
      }
    }
  });
}

StatusOr<Tensor> LegacyTensor(DType dtype, const Shape& shape, const pb::TensorProto& proto) {
  MR_RETURN_IF_ERROR(CheckLegacyType(dtype));
  const int64_t n = ValuesOf(dtype, shape);
  int64_t given = 0;
  WithField(dtype, proto, [&](const auto& field, auto) { given = field.size(); });
  if (given != n)
    return InvalidArgument("it has ", given, " values, and ", DTypeName(dtype), shape.ToString(), " has ", n);
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, shape));
  WithField(dtype, proto, [&](const auto& field, auto tag) {
    using T = typename decltype(tag)::type;
    T* const values = tensor.raw<T>();
    for (int64_t i = 0; i < n; ++i) values[i] = static_cast<T>(field.Get(static_cast<int>(i)));
  });
  return tensor;
}

}  // namespace millrace
