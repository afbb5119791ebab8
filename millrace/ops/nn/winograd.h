// Convolutions by Winograd's minimal filtering, in tiles of 2 x 2 outputs: 16 products for windows of 3 x 3 where the
// definition has 36, and 36 for windows of 5 x 5 (49 for the filter's gradient) where it has 100. In tiles this small
// the result is as exact as the definition's sum, for 5 x 5 within a small factor. A pixel that is not finite makes its
// neighbours NaN.
#pragma once

#include "millrace/ops/nn/convolution.h"

namespace millrace::conv::winograd {

// Whether it is possible (2-D, channels last and full vectors of them, 3 x 3 or 5 x 5, no strides, groups or dilation) and
// worth it: small convolutions are done before their filter is transformed.
bool Serves(const ConvGeometry& g);

// As RunConvolution, of float. The same bits on any number of threads.
Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
           const ConvEpilogue& epilogue);

}  // namespace millrace::conv::winograd
