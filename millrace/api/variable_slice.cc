#include "millrace/api/variable_slice.h"

#include "absl/strings/str_join.h"
#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"

namespace millrace {

std::string VariableSlice::Spec() const {
  if (full_shape.rank() == 0) return "";  // a scalar has no parts
  std::vector<std::string> extents;
  for (int i = 0; i < full_shape.rank(); ++i)
    extents.push_back(absl::StrCat(offset[static_cast<size_t>(i)], ",", shape.dim(i)));
  return absl::StrCat(absl::StrJoin(full_shape.dims(), " "), " ", absl::StrJoin(extents, ":"));
}

const VariableSlice* SliceOf(const Var& variable) {
  if (variable.handle().empty()) return nullptr;
  const auto& slices = api_internal::StateOf(variable.scope()).slices;
  const auto at = slices.find(variable.handle().node());
  return at == slices.end() ? nullptr : &at->second;
}

void SetSlice(const Var& variable, VariableSlice slice) {
  if (!variable.handle().empty())
    api_internal::StateOf(variable.scope()).slices[variable.handle().node()] = std::move(slice);
}

}  // namespace millrace
