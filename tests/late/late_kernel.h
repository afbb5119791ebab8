// The CPU's kernels on a late device.
#pragma once

#include "millrace/graph/graph.h"

namespace millrace::late {

// From now on, a node without a GPU kernel has one if a late device can run the CPU's.
void RegisterLateKernels();

// Whether it can: the op's inputs and results are numbers, or variables; it neither waits nor calls functions.
bool CanRunLate(const Node& node);

}  // namespace millrace::late
