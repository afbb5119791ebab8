#include "millrace/tensor/resource_handle.h"

#include "absl/strings/str_cat.h"

namespace millrace {

std::string ResourceHandle::DebugString() const {
  std::string out = absl::StrCat(type_name.empty() ? "resource" : type_name, " ", container, "/", name);
  if (!device.empty()) absl::StrAppend(&out, " on ", device);
  for (const auto& [dtype, shape] : dtypes_and_shapes) {
    absl::StrAppend(&out, " ", DTypeName(dtype), shape.ToString());
  }
  return out;
}

}  // namespace millrace
