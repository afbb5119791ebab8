// The lists of nodes and of tasks per node that Slurm puts into its variables.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// The most nodes that a list may name, and the most characters that they may have together.
inline constexpr size_t kMaxNodes = 1 << 16;
inline constexpr size_t kMaxNodeCharacters = 4 << 20;

// Expands "a,b[01,03-05],r[0-1]c[1-2]" to the names in its order, as `scontrol show hostnames` does: widths are kept
// (01, 03), two brackets of one name vary the second one faster (scontrol orders three in its own way).
// INVALID_ARGUMENT says what is malformed; RESOURCE_EXHAUSTED if it names more than the limits above, which costs no
// memory.
StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view list);

// Expands "2(x3),1" to 2, 2, 2, 1: the tasks on each node, in the order of its node list. Errors as above.
StatusOr<std::vector<int>> ExpandCounts(absl::string_view counts);

}  // namespace millrace::launch
