#include "millrace/ops/array/int_list.h"

#include <limits>

namespace millrace {

StatusOr<IntList> ReadInts(const Tensor& tensor, absl::string_view what) {
  IntList list(static_cast<size_t>(tensor.num_elements()));
  switch (tensor.dtype()) {
    case DType::kInt32: {
      const int32_t* p = tensor.data<int32_t>();
      for (size_t i = 0; i < list.size(); ++i) list[i] = p[i];
      return list;
    }
    case DType::kInt64: {
      const int64_t* p = tensor.data<int64_t>();
      for (size_t i = 0; i < list.size(); ++i) list[i] = p[i];
      return list;
    }
    case DType::kInt8: {
      const int8_t* p = tensor.data<int8_t>();
      for (size_t i = 0; i < list.size(); ++i) list[i] = p[i];
      return list;
    }
    case DType::kInt16: {
      const int16_t* p = tensor.data<int16_t>();
      for (size_t i = 0; i < list.size(); ++i) list[i] = p[i];
      return list;
    }
    default:
      return InvalidArgument(what, " must be of an integer type, got ", tensor.dtype());
  }
}

StatusOr<IntList> ReadIntVector(const Tensor& tensor, absl::string_view what) {
  if (tensor.rank() != 1) {
    return InvalidArgument(what, " must be a vector, got shape ", tensor.shape().ToString());
  }
  return ReadInts(tensor, what);
}

StatusOr<int64_t> ReadInt(const Tensor& tensor, absl::string_view what) {
  if (tensor.num_elements() != 1) {
    return InvalidArgument(what, " must be a scalar: it must have exactly one element, got shape ",
                           tensor.shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(IntList list, ReadInts(tensor, what));
  return list[0];
}

Status WriteInts(absl::Span<const int64_t> values, Tensor* out) {
  if (out->dtype() == DType::kInt64) {
    std::copy(values.begin(), values.end(), out->data<int64_t>());
    return absl::OkStatus();
  }
  int32_t* p = out->data<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > std::numeric_limits<int32_t>::max() || values[i] < std::numeric_limits<int32_t>::min()) {
      return InvalidArgument("value ", values[i], " at ", i, " does not fit into int32");
    }
    p[i] = static_cast<int32_t>(values[i]);
  }
  return absl::OkStatus();
}

StatusOr<int> ReadAxis(int64_t axis, int rank, absl::string_view what) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument(what, " = ", axis, " is out of range: expected a value in [", -rank, ", ", rank, ")");
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace millrace
