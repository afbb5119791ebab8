// The graph of the import case.
#pragma once

#include "millrace/proto/graph.pb.h"

namespace millrace::bench {

// 100,000 nodes: "x", fed with a float, passes through a line of Identity nodes into 500 chains of
// additions of constants and Tanh, whose ends add up to "result". Nothing in it can be folded or shared.
::tensorflow::GraphDef LargeGraph();

}  // namespace millrace::bench
