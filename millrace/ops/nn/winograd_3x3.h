// Winograd convolutions of 3 x 3 windows. Without strides, in tiles of 4 x 4 outputs: 36 products instead of 144, with
// about twice the rounding error of direct summation. With strides of 2, in tiles of 2 x 2 outputs: 25 instead of 36. A
// non-finite pixel makes its neighbours NaN.
#pragma once

#include "millrace/ops/nn/convolution.h"

namespace millrace::conv::winograd_3x3 {

// True if the window is 3 x 3 without groups or dilation, strides are 1, or 2 without padding before the image,
// channels are last and a multiple of the vector width, and there is enough to do: for small convolutions the
// transformation of the filter costs too much.
bool Serves(const ConvGeometry& g);

// Like RunConvolution, for float. Bit-identical on any number of threads, not on all machines: those with AVX-512 sum
// in another order.
Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
           const ConvEpilogue& epilogue);

}  // namespace millrace::conv::winograd_3x3
