#pragma once

#include "millrace/graph/cut_graph.h"

namespace millrace {

// Replaces every edge between tasks by a _Send and a _Recv. Feeds are left unchanged.
Status CutEdges(CutGraph& cut);

}  // namespace millrace
