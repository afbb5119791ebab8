// Winograd convolutions of 5 x 5 windows in tiles of 2 x 2 outputs: 36 products (49 for the filter's gradient) instead
// of 100. With tiles this small the result is nearly as accurate as direct summation. A non-finite pixel makes its
// neighbours NaN. 3 x 3 windows: winograd_3x3.h.
#pragma once

#include "millrace/ops/nn/convolution.h"

namespace millrace::conv::winograd {

// True if Winograd is possible (2-D, channels last and a multiple of the vector width, 5 x 5, no strides, groups
// or dilation) and worthwhile: for small convolutions the transformation of the filter costs too much.
bool Serves(const ConvGeometry& g);

// Like RunConvolution, for float. Bit-identical on any number of threads.
Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
           const ConvEpilogue& epilogue);

}  // namespace millrace::conv::winograd
