// What Gather and GatherV2 choose, on the CPU and on a GPU.
#pragma once

#include "millrace/runtime/kernel.h"

namespace millrace {

// params viewed as [batch, outer, axis, inner], indices as [batch, count].
struct GatherDims {
  int64_t batch, outer, axis, inner, count;
  Shape shape;  // of the result
};

// Reads the axis from the third input, if there is one. INVALID_ARGUMENT if the inputs' shapes do not fit.
StatusOr<GatherDims> DimsOfGather(const KernelContext& ctx, int64_t batch_dims);

}  // namespace millrace
