// Decides when a TF1 variable that another task reads is sent.
//
// Within a task, a consumer ordered after an update of a variable sees the update even through an Identity that ran
// before it: see passes/late_reads.cc. The same must hold if the reader, or a node in between, is on another task: a
// consumer ordered after an update reads the variable itself, which is sent after the update.
#pragma once

#include "millrace/graph/cut_graph.h"

namespace millrace {

// (consumer, input): the variable updates that must run before the value is sent.
using LateSends = absl::flat_hash_map<std::pair<int, int>, std::vector<Node*>>;

// Connects such consumers to the variable.
LateSends FindLateSends(const CutGraph& cut);

}  // namespace millrace
