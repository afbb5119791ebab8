#include "millrace/graph/passes/fused_node.h"

#include <algorithm>

namespace millrace {

NodeSpec SpecInPlaceOf(absl::Span<Node* const> parts, const char* op) {
  NodeSpec spec;
  spec.op = op;
  for (const Node* part : parts) {
    for (Node* before : part->control_inputs()) {
      if (std::find(spec.control_inputs.begin(), spec.control_inputs.end(), before) == spec.control_inputs.end()) {
        spec.control_inputs.push_back(before);
      }
    }
  }
  spec.device = parts.back()->requested_device();
  for (const auto& [name, value] : parts.back()->attrs()) {
    if (name[0] == '_') spec.attrs[name] = value;
  }
  return spec;
}

std::vector<std::string> OriginsOf(absl::Span<Node* const> parts) {
  std::vector<std::string> origins;
  for (const Node* part : parts) origins.insert(origins.end(), part->origins().begin(), part->origins().end());
  return origins;
}

}  // namespace millrace
