// Saving variables without taking snapshots first.
#pragma once

#include "millrace/graph/passes/pass.h"

namespace millrace {

// Replaces SaveV2(ReadVariableOp(...)) by a _SaveVariables of the same name, which reads the variables itself, piece by
// piece; otherwise a variable with sparse updates would be copied as a whole. Applies only to steps that modify no
// variable and to reads without other consumers.
Status SaveVariablesInPlace(Graph* graph, const PassContext& context);

}  // namespace millrace
