// Variables that are saved as they are written, without a snapshot before.
#pragma once

#include "millrace/graph/passes/pass.h"

namespace millrace {

// SaveV2 of what ReadVariableOp gives becomes one _SaveVariables under its name, which reads the variables itself, piece by piece. A variable that is updated
// by rows would be copied otherwise, all of it at once. Only in a step that changes no variable, and where nothing else hangs on the reading.
Status SaveVariablesInPlace(Graph* graph, const PassContext& context);

}  // namespace millrace
