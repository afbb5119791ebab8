// GraphDef in and out.
#pragma once

#include "millrace/graph/graph.h"

namespace millrace {

// Adds the nodes of `def` to `graph` (its nodes may refer to those already there), merges the function
// library and takes the versions. On error the graph is as before. Takes the message by value: large
// constants are moved, not copied.
//
// INVALID_ARGUMENT (NOT_FOUND for an op that is not registered or a required attr that is missing)
// names the node: duplicate or bad name, unknown input, wrong number or types of inputs, bad attr,
// a cycle without NextIteration.
Status ImportGraphDef(pb::GraphDef def, Graph* graph);

// All nodes in order, with their attributes (defaults included), devices and control inputs.
pb::GraphDef ExportGraphDef(const Graph& graph);
pb::NodeDef ExportNodeDef(const Node& node);

}  // namespace millrace
