// Small tensors that go from one task to another at the same point of a step travel in one message.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "millrace/graph/partition.h"

namespace millrace {

// Marks the _Send and _Recv nodes of tensors that travel together, by the attribute kReceiveGroupAttr with the number of their group: tensors from one task to
// one other, both of whom speak Millrace, that
// - are small, by their known shapes, alone and together: a large one is worth a call of its own, and its sender need not wait for it;
// - depend on the same number of edges between tasks one after the other: then none of them can need another one's receiver to go on;
// - come without waiting: what they are computed from has no op that may block (a queue, another client), so that none keeps the others back.
// Nothing is marked in steps with loops or conditionals, whose tensors travel many times or not at all.
void GroupReceives(absl::Span<Part> parts, absl::FunctionRef<bool(absl::string_view task)> speaks_millrace);

// Whether the op ends as soon as its inputs are there.
bool IsPrompt(const Node& node);

inline constexpr char kReceiveGroupAttr[] = "_receive_group";

// What one call fetches.
struct ReceiveGroup {
  std::string task;               // from whom
  std::vector<std::string> keys;  // two or more
};
// The groups of a part, and all of their keys.
struct ReceiveGroups {
  std::vector<ReceiveGroup> groups;
  absl::flat_hash_set<std::string> keys;
};
// By the marks; those that stand alone or make no sense are left out.
ReceiveGroups FindReceiveGroups(const Graph& graph);

}  // namespace millrace
