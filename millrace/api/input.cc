#include "millrace/api/input.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"

namespace millrace {
namespace {

// `value` as T, or an error if T cannot represent it. Floating-point types round.
template <typename T, typename From>
Status Convert(From value, DType dtype, T* out) {
  if constexpr (std::is_integral_v<T>) {
    bool fits;
    if constexpr (std::is_floating_point_v<From>) {
      fits = value == std::floor(value) && value >= static_cast<double>(std::numeric_limits<T>::min()) &&
             value < std::ldexp(1.0, std::numeric_limits<T>::digits);
    } else {
      fits = std::in_range<T>(value);
    }
    if (!fits) return InvalidArgument("the constant ", value, " is not a ", DTypeName(dtype));
    *out = static_cast<T>(value);
  } else {
    *out = T(static_cast<double>(value));
  }
  return absl::OkStatus();
}

template <typename T>
StatusOr<Tensor> ConvertAll(const Tensor& from, DType dtype) {
  MR_ASSIGN_OR_RETURN(Tensor to, Tensor::Make(dtype, from.shape()));
  T* out = to.data<T>();
  for (int64_t i = 0; i < from.num_elements(); ++i) {
    if (from.dtype() == DType::kInt64) {
      MR_RETURN_IF_ERROR(Convert<T>(from.data<int64_t>()[i], dtype, &out[i]));
    } else {
      MR_RETURN_IF_ERROR(Convert<T>(from.data<double>()[i], dtype, &out[i]));
    }
  }
  return to;
}

StatusOr<Tensor> ConvertTo(const Tensor& from, DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return ConvertAll<float>(from, dtype);
    case DType::kDouble:
      return ConvertAll<double>(from, dtype);
    case DType::kHalf:
      return ConvertAll<half>(from, dtype);
    case DType::kBFloat16:
      return ConvertAll<bfloat16>(from, dtype);
    case DType::kInt8:
      return ConvertAll<int8_t>(from, dtype);
    case DType::kInt16:
      return ConvertAll<int16_t>(from, dtype);
    case DType::kInt32:
      return ConvertAll<int32_t>(from, dtype);
    case DType::kInt64:
      return ConvertAll<int64_t>(from, dtype);
    case DType::kUInt8:
      return ConvertAll<uint8_t>(from, dtype);
    case DType::kUInt16:
      return ConvertAll<uint16_t>(from, dtype);
    case DType::kUInt32:
      return ConvertAll<uint32_t>(from, dtype);
    case DType::kUInt64:
      return ConvertAll<uint64_t>(from, dtype);
    case DType::kComplex64:
      return ConvertAll<std::complex<float>>(from, dtype);
    case DType::kComplex128:
      return ConvertAll<std::complex<double>>(from, dtype);
    default:
      return InvalidArgument("a number cannot be a constant of type ", DTypeName(dtype));
  }
}

Tensor AsDoubles(const Tensor& numbers) {
  if (numbers.dtype() == DType::kDouble) return numbers;
  Tensor result(DType::kDouble, numbers.shape());
  std::copy_n(numbers.data<int64_t>(), numbers.num_elements(), result.data<double>());
  return result;
}

template <typename T>
void CopyRow(const Tensor& row, int64_t i, Tensor* all) {
  std::copy_n(row.data<T>(), row.num_elements(), all->data<T>() + i * row.num_elements());
}

}  // namespace

Literal::Literal(std::initializer_list<Literal> rows) {
  if (rows.size() == 0) {
    value_ = Tensor(DType::kInt64, Shape({0}));
    usual_ = DType::kFloat;
    return;
  }
  const Literal& first = *rows.begin();
  bool doubles = false;
  usual_ = first.usual_;
  for (const Literal& row : rows) {
    if (status_.ok()) status_ = row.status_;
    if (row.shape() != first.shape() || row.adapts() != first.adapts() ||
        (!row.adapts() && row.value_.dtype() != first.value_.dtype())) {
      if (status_.ok()) {
        status_ =
            InvalidArgument("a constant in braces has parts of different shapes or types: ", first.value_.DebugString(),
                            " and ", row.value_.DebugString());
      }
      return;
    }
    doubles |= row.value_.dtype() == DType::kDouble;
    if (row.usual_ == DType::kFloat || (row.usual_ == DType::kInt64 && usual_ == DType::kInt32)) {
      usual_ = row.usual_;
    }
  }
  ::millrace::Shape shape = first.shape();
  shape.InsertDim(0, static_cast<int64_t>(rows.size()));
  const DType kept = adapts() && doubles ? DType::kDouble : first.value_.dtype();
  StatusOr<Tensor> all = Tensor::Make(kept, shape);
  if (!all.ok()) {
    status_ = all.status();
    return;
  }
  int64_t i = 0;
  for (const Literal& row : rows) {
    switch (kept) {
      case DType::kDouble:
        CopyRow<double>(adapts() ? AsDoubles(row.value_) : row.value_, i++, &*all);
        break;
      case DType::kInt64:
        CopyRow<int64_t>(row.value_, i++, &*all);
        break;
      case DType::kInt32:
        CopyRow<int32_t>(row.value_, i++, &*all);
        break;
      case DType::kFloat:
        CopyRow<float>(row.value_, i++, &*all);
        break;
      case DType::kBool:
        CopyRow<bool>(row.value_, i++, &*all);
        break;
      case DType::kString:
        CopyRow<std::string>(row.value_, i++, &*all);
        break;
      default:
        status_ = InvalidArgument("braces do not take tensors of type ", DTypeName(kept));
        return;
    }
  }
  value_ = *std::move(all);
}

StatusOr<Tensor> Literal::As(DType dtype) const {
  MR_RETURN_IF_ERROR(status_);
  if (!adapts()) return value_;
  return ConvertTo(value_, dtype);
}

DType Input::dtype() const {
  if (is_output_) return output_.dtype();
  return literal_.adapts() ? DType::kInvalid : literal_.usual_type();
}

Output Input::In(const Scope& scope, DType dtype, absl::string_view name) const {
  if (is_output_) return output_;
  const DType type = dtype == DType::kInvalid ? literal_.usual_type() : dtype;
  StatusOr<Tensor> value = literal_.As(type);
  if (!value.ok()) {
    scope.UpdateStatus(WithPrefix(absl::StrCat("in scope '", scope.prefix(), "': "), value.status()));
    return Output(scope, Endpoint{});
  }
  return OpCall(scope.op_name().empty() ? scope.WithOpName(name) : scope, "Const")
      .Attr("value", *value)
      .Attr("dtype", value->dtype())
      .Add()
      .output(0);
}

}  // namespace millrace
