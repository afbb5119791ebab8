#include "millrace/ops/control_flow/summarize.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/float_text.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <typename T>
void AppendElement(const T& value, std::string* out) {
  if constexpr (std::is_same_v<T, std::string>) {
    out->append(absl::CEscape(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    out->append(value ? "1" : "0");
  } else if constexpr (std::is_same_v<T, double>) {
    out->append(DoubleText(value));
  } else if constexpr (!std::is_integral_v<T>) {
    out->append(FloatText(static_cast<float>(value)));
  } else if constexpr (sizeof(T) == 1) {
    absl::StrAppend(out, static_cast<int>(value));
  } else {
    absl::StrAppend(out, value);
  }
}

// Writes dimension `dim` and the inner ones, from element *next on. A truncated row ends in "...", unless it is the
// only one.
template <typename T>
void AppendDim(const Tensor& tensor, int dim, int64_t limit, int64_t* next, std::string* out) {
  const T* const data = tensor.data<T>();
  const int64_t size = tensor.dim(dim);
  const bool innermost = dim == tensor.rank() - 1;
  for (int64_t i = 0; i < size; ++i) {
    if (*next >= limit) {
      if (innermost && dim > 0) out->append("...");
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
  const int64_t n = tensor.num_elements();
  const int64_t limit = max_entries < 0 ? n : std::min(max_entries, n);
  std::string out;
  const bool known =
      DispatchType(JoinTypes<RealTypes, Types<bool, std::string>>::type{}, tensor.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (limit == 0) return;
        if (tensor.rank() == 0) return AppendElement(tensor.scalar<T>(), &out);
        int64_t next = 0;
        AppendDim<T>(tensor, 0, limit, &next, &out);
      });
  if (!known) {
    if (!IsPlain(tensor.dtype())) return tensor.DebugString();
    for (int64_t i = 0; i < limit; ++i) out.append(i == 0 ? "?" : " ?");
  }
  if (limit < n) out.append("...");
  return out;
}

}  // namespace millrace
