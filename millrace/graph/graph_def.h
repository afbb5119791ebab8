// Import and export of GraphDef.
#pragma once

#include "millrace/graph/graph.h"

namespace millrace {

// Adds the nodes of `def` to `graph` (they may refer to existing nodes), merges the function library and copies the
// versions. On error the graph is unchanged. Takes the message by value so that large constants are moved, not copied.
//
// INVALID_ARGUMENT, naming the node, for a duplicate or invalid name, an unknown input, a wrong number or types of
// inputs, an invalid attr or a cycle without NextIteration; NOT_FOUND for an op that is not registered or a required
// attr that is missing.
Status ImportGraphDef(pb::GraphDef def, Graph* graph);

// All nodes in order with their attributes (including defaults), devices and control inputs.
pb::GraphDef ExportGraphDef(const Graph& graph);
pb::NodeDef ExportNodeDef(const Node& node);

}  // namespace millrace
