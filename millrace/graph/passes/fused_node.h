// What a node that a pass makes of several inherits from them.
#pragma once

#include <string>
#include <vector>

#include "millrace/graph/graph.h"

namespace millrace {

// For a node of type `op` in place of `parts`, of which the last one keeps its name: the control inputs of all of them,
// and the requested device and the undeclared attributes of the last one.
NodeSpec SpecInPlaceOf(absl::Span<Node* const> parts, const char* op);

// The origins of all parts, in order.
std::vector<std::string> OriginsOf(absl::Span<Node* const> parts);

}  // namespace millrace
