// Lines of a tensor along an axis, for kernels on the CPU and on a GPU.
#pragma once

#include "millrace/runtime/kernel.h"

namespace millrace {

// x[outer][n][inner] along n.
struct LineDims {
  int64_t outer, n, inner;
  int64_t lines() const { return outer * inner; }
};

// Of ArgMax and ArgMin, whose second input is the axis. `shape` gets that of the result. INVALID_ARGUMENT if there is
// no such axis or it is empty.
StatusOr<LineDims> LinesOfArg(const KernelContext& ctx, Shape* shape);
// Of Cumsum and its kin, whose second input is the axis.
StatusOr<LineDims> LinesOfScan(const KernelContext& ctx);

}  // namespace millrace
