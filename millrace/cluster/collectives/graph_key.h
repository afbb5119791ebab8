// The key by which masters that run the same graph with collective ops know that it is the same.
#pragma once

#include <cstdint>

#include "millrace/graph/graph.h"

namespace millrace {

// 0 if the graph has no collective ops. Otherwise TensorFlow's key of a graph, for which RunOptions give none: a hash
// of the instance keys that are attrs of its ops.
int64_t CollectiveGraphKey(const Graph& graph);

}  // namespace millrace
