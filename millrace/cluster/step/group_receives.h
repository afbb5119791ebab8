// Groups small tensors that go from one task to another at the same point of a step, so that one call fetches them.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "millrace/graph/partition.h"

namespace millrace {

// Marks the _Send and _Recv nodes of tensors that are sent together: sets kReceiveGroupAttr to the number of their
// group. A group has tensors between the same two tasks, both Millrace's, that
// - are small according to their static shapes, each and in total: a large one is worth a call of its own;
// - depend on paths with the same number of edges between tasks, so that none of them depends on the receiver of
//   another;
// - do not depend on an op that may block (a dequeue, another client), so that none delays the others.
//
// Steps with loops or conditionals are not marked: their tensors may be sent many times or not at all.
void GroupReceives(absl::Span<Part> parts, absl::FunctionRef<bool(absl::string_view task)> speaks_millrace);

// Whether the op completes without blocking once its inputs are available.
bool IsPrompt(const Node& node);

inline constexpr char kReceiveGroupAttr[] = "_receive_group";

// The tensors that one call fetches.
struct ReceiveGroup {
  std::string task;               // the task to fetch them from
  std::vector<std::string> keys;  // two or more
};
// The groups of a part, and all of their keys.
struct ReceiveGroups {
  std::vector<ReceiveGroup> groups;
  absl::flat_hash_set<std::string> keys;
};
// Reads the marks; groups of a single tensor and invalid marks are ignored.
ReceiveGroups FindReceiveGroups(const Graph& graph);

}  // namespace millrace
