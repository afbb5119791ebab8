#include "millrace/tensor/copy_elements.h"

#include <algorithm>
#include <cstring>

#include "millrace/base/status.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

void CopyElements(DType dtype, const void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t n) {
  if (n == 0) return;
  if (IsPlain(dtype)) {
    const auto size = static_cast<int64_t>(SizeOf(dtype));
    std::memcpy(static_cast<char*>(to) + to_offset * size, static_cast<const char*>(from) + from_offset * size,
                static_cast<size_t>(n * size));
    return;
  }
  const bool known = DispatchMove(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::copy_n(static_cast<const T*>(from) + from_offset, n, static_cast<T*>(to) + to_offset);
  });
  MR_CHECK(known);
}

}  // namespace millrace
