#include "millrace/ops/control_flow/summarize.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <typename T>
void AppendElement(const T& value, std::string* out) {
  if constexpr (std::is_same_v<T, std::string>) {
    out->append(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    out->append(value ? "1" : "0");
  } else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
    absl::StrAppend(out, static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>) {
    absl::StrAppend(out, "(", value.real(), ",", value.imag(), ")");
  } else if constexpr (sizeof(T) == 1) {
    absl::StrAppend(out, static_cast<int>(value));
  } else {
    absl::StrAppend(out, value);
  }
}

// Writes dimension `dim` and those inside it, from element *next on.
template <typename T>
void AppendDim(const Tensor& tensor, int dim, int64_t limit, int64_t* next, std::string* out) {
  const T* const data = tensor.data<T>();
  const int64_t size = tensor.dim(dim);
  const bool innermost = dim == tensor.rank() - 1;
  for (int64_t i = 0; i < size; ++i) {
    if (*next >= limit) {
      out->append("...");
      return;
    }
    if (innermost) {
      if (i > 0) out->push_back(' ');
      AppendElement(data[(*next)++], out);
    } else {
      out->push_back('[');
      AppendDim<T>(tensor, dim + 1, limit, next, out);
      out->push_back(']');
    }
  }
}

}  // namespace

std::string SummarizeValues(const Tensor& tensor, int64_t max_entries) {
  const int64_t limit = max_entries < 0 ? std::numeric_limits<int64_t>::max() : max_entries;
  std::string out;
  const bool known = DispatchType(
      JoinTypes<PlainTypes, Types<std::string>>::type{}, tensor.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (tensor.num_elements() == 0) return;
        if (tensor.rank() == 0) return AppendElement(tensor.scalar<T>(), &out);
        int64_t next = 0;
        AppendDim<T>(tensor, 0, limit, &next, &out);
      });
  return known ? out : tensor.DebugString();
}

}  // namespace millrace
