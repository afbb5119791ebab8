// Convolutions from three colours with 3 x 3 windows, which networks for images begin with: too few channels for the
// kernels that take them in vectors.
#pragma once

#include "millrace/ops/nn/convolution.h"

namespace millrace::conv::rgb {

// True for the forward direction and the filter's gradient of images with three channels last, a window of 3 x 3
// without dilation, and outputs in a multiple of the vector width.
bool Serves(ConvKind kind, const ConvGeometry& g);

// Like RunConvolution, for float. Bit-identical on any number of threads.
Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
           const ConvEpilogue& epilogue);

}  // namespace millrace::conv::rgb
