// Gradients of the conditional that Switch and Merge make.
#pragma once

#include "millrace/graph/gradient.h"

namespace millrace {

// The gradient of a Switch's data: that of the branch taken; zeros where a branch gave none.
Status SwitchGradient(GradientContext& c);

// The gradient of each value that a Merge joins: the Merge's own, alive in the branch it came from.
// UNIMPLEMENTED for the Merge of a loop.
Status MergeGradient(GradientContext& c);

}  // namespace millrace
