// Winograd convolutions in tiles of 2 x 2 outputs: 16 products instead of 36 for 3 x 3 windows, and 36 (49 for the
// filter's gradient) instead of 100 for 5 x 5 windows. With tiles this small the result is as accurate as direct
// summation, for 5 x 5 within a small factor. A non-finite pixel makes its neighbours NaN.
#pragma once

#include "millrace/ops/nn/convolution.h"

namespace millrace::conv::winograd {

// True if Winograd is possible (2-D, channels last and a multiple of the vector width, 3 x 3 or 5 x 5, no strides,
// groups or dilation) and worthwhile: for small convolutions the transformation of the filter costs too much.
bool Serves(const ConvGeometry& g);

// Like RunConvolution, for float. Bit-identical on any number of threads.
Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
           const ConvEpilogue& epilogue);

}  // namespace millrace::conv::winograd
