// References: the edges of TF1 variables, over which a consumer can read and change the variable.
#pragma once

#include "millrace/graph/graph.h"

namespace millrace {

// The variable that a reference refers to, through ops that forward references.
Endpoint ReferredVariable(Endpoint reference);

}  // namespace millrace
