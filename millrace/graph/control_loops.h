// Loops that span tasks.
//
// A frame exists in every part that has nodes of the loop, and advances there only while some node of that part
// iterates. Therefore each such task gets a control loop: an Enter, Merge, Switch and NextIteration of a dummy value,
// controlled by the loop's predicate, which is received from the task of its LoopCond. Its Merge fires once per
// iteration, even if the loop itself is in a branch that was not taken: every _Recv inside the loop waits for it and
// gets a live or a dead value.
#pragma once

#include "millrace/graph/cut_graph.h"

namespace millrace {

// Finds the loops, copies Enter and NextIteration nodes to the tasks that use them, and adds a control loop to every
// task that has nodes of a loop that spans tasks.
Status PrepareLoops(CutGraph& cut);

}  // namespace millrace
