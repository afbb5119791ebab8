// Gradients of conditionals built from Switch and Merge.
#pragma once

#include "millrace/graph/gradient.h"

namespace millrace {

// The gradient of a Switch's data is the gradient of the branch that was taken, or zeros if that branch has none.
Status SwitchGradient(GradientContext& c);

// The gradient of each input of a Merge is the Merge's own gradient, alive only in the branch that was taken.
// UNIMPLEMENTED for the Merge of a loop.
Status MergeGradient(GradientContext& c);

}  // namespace millrace
