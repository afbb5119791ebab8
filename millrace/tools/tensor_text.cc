#include "millrace/tools/tensor_text.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "millrace/base/float_text.h"
#include "millrace/tensor/dispatch.h"
#include "nlohmann/json.hpp"

namespace millrace {

std::string ValueText(const Tensor& tensor, int64_t i) {
  std::string text = "?";
  if (tensor.dtype() == DType::kString) return absl::StrCat("\"", absl::CEscape(tensor.data<std::string>()[i]), "\"");
  if (tensor.dtype() == DType::kBool) return tensor.data<bool>()[i] ? "true" : "false";
  DispatchType(RealTypes(), tensor.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T value = tensor.data<T>()[i];
    if constexpr (std::is_integral_v<T>) {
      text = absl::StrCat(static_cast<int64_t>(value));
      if constexpr (std::is_same_v<T, uint64_t>) text = absl::StrCat(value);
    } else if constexpr (std::is_same_v<T, double>) {
      text = DoubleText(value);
    } else {
      text = FloatText(static_cast<float>(value));
    }
  });
  return text;
}

void PrintValues(const Tensor& tensor, int64_t max_values) {
  const int64_t columns = tensor.rank() == 0 ? 1 : tensor.dim(tensor.rank() - 1);
  const int64_t shown = std::min(tensor.num_elements(), max_values);
  for (int64_t i = 0; i < shown; ++i)
    std::cout << ValueText(tensor, i) << ((i + 1) % columns == 0 || i + 1 == shown ? "\n" : " ");
  if (shown < tensor.num_elements())
    std::cout << "... and " << tensor.num_elements() - shown << " more (--max_values)\n";
}

namespace {

using Json = nlohmann::json;

// Appends the leaves of nested lists, and determines their shape.
Status Flatten(const Json& value, size_t depth, std::vector<int64_t>* dims, std::vector<const Json*>* leaves) {
  const bool at_leaf = !value.is_array();
  if (leaves->empty() && !at_leaf && depth == dims->size()) dims->push_back(static_cast<int64_t>(value.size()));
  if (at_leaf != (depth == dims->size()))
    return InvalidArgument("a list and a value stand side by side at ", value.dump());
  if (at_leaf) {
    leaves->push_back(&value);
    return absl::OkStatus();
  }
  if (static_cast<int64_t>(value.size()) != (*dims)[depth]) {
    return InvalidArgument("lists of different lengths: ", value.dump(), " has ", value.size(), " values, others have ",
                           (*dims)[depth]);
  }
  for (const Json& each : value) MR_RETURN_IF_ERROR(Flatten(each, depth + 1, dims, leaves));
  return absl::OkStatus();
}

Status DoesNotFit(const Json& value, DType dtype) { return InvalidArgument(value.dump(), " is not ", dtype); }

template <typename T>
Status Put(const Json& value, DType dtype, T* out) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) return DoesNotFit(value, dtype);
    *out = value.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    const bool negative = value.is_number_integer() && !value.is_number_unsigned();
    if (!value.is_number_integer() ||
        (negative ? value.get<int64_t>() < static_cast<int64_t>(std::numeric_limits<T>::min())
                  : value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<T>::max()))) {
      return DoesNotFit(value, dtype);
    }
    *out = negative ? static_cast<T>(value.get<int64_t>()) : static_cast<T>(value.get<uint64_t>());
  } else {
    double number = 0;
    if (value.is_number()) {
      number = value.get<double>();
    } else if (!value.is_string() || !absl::SimpleAtod(value.get<std::string>(), &number)) {
      return DoesNotFit(value, dtype);
    }
    *out = static_cast<T>(number);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Tensor> TensorFromText(absl::string_view text, DType dtype) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    if (dtype != DType::kString) return InvalidArgument("'", text, "' is not a value or a list of values (JSON)");
    json = std::string(text);
  }
  std::vector<int64_t> dims;
  std::vector<const Json*> leaves;
  MR_RETURN_IF_ERROR(Flatten(json, 0, &dims, &leaves));
  MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, shape));
  Status status;
  if (dtype == DType::kString) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i]->is_string()) return DoesNotFit(*leaves[i], dtype);
      tensor.data<std::string>()[i] = leaves[i]->get<std::string>();
    }
    return tensor;
  }
  if (dtype == DType::kBool) {
    for (size_t i = 0; i < leaves.size(); ++i) MR_RETURN_IF_ERROR(Put(*leaves[i], dtype, tensor.data<bool>() + i));
    return tensor;
  }
  const bool known = DispatchType(RealTypes(), dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (size_t i = 0; i < leaves.size() && status.ok(); ++i) status = Put(*leaves[i], dtype, tensor.data<T>() + i);
  });
  if (!known) return Unimplemented("values of type ", dtype, " cannot be given as text; use a .npy file");
  MR_RETURN_IF_ERROR(status);
  return tensor;
}

}  // namespace millrace
