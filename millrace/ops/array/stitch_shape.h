// What DynamicStitch merges, for kernels on the CPU and on a GPU.
#pragma once

#include "millrace/runtime/kernel.h"

namespace millrace {

// The shape of the result: its first dimension is one more than the largest index. The inputs are n vectors of indices,
// in host memory, and n tensors. INVALID_ARGUMENT if they do not fit.
StatusOr<Shape> ShapeOfStitch(const KernelContext& ctx, int n);

}  // namespace millrace
