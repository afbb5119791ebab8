// Lowers calls with branches and loops to control-flow primitives. Each returns false, with nothing changed, if the
// call may not be inlined: its kernel then runs it.
#pragma once

#include "millrace/graph/passes/body_splicer.h"

namespace millrace {

// If and Case, to Switch and Merge.
StatusOr<bool> LowerCond(BodySplicer& splicer, const BodySplicer::Call& call);
// While, to a loop of Enter, Merge, Switch, NextIteration and Exit.
StatusOr<bool> LowerWhile(BodySplicer& splicer, const BodySplicer::Call& call);

}  // namespace millrace
