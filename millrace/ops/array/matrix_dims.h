// What OneHot and MatrixBandPart make, for kernels on the CPU and on a GPU.
#pragma once

#include "millrace/runtime/kernel.h"

namespace millrace {

// out[outer][depth][inner] of indices[outer][inner].
struct OneHotDims {
  int64_t outer, depth, inner;
  Shape shape;
};
StatusOr<OneHotDims> DimsOfOneHot(const KernelContext& ctx, int64_t axis);

// Diagonals below and above the main one that are kept; negative: all.
struct BandDims {
  int64_t matrices, rows, columns, lower, upper;
};
StatusOr<BandDims> DimsOfBand(const KernelContext& ctx);

}  // namespace millrace
