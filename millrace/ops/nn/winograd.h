// Convolutions of 3 x 3 windows by Winograd's minimal filtering: 16 products where the definition has 36. In tiles
// of this size the transforms are sums and halves, and the result is as exact as the definition's. A pixel that is
// not finite makes its neighbours NaN.
#pragma once

#include "millrace/ops/nn/convolution.h"

namespace millrace::conv::winograd {

// Whether it is possible (2-D, channels last and full vectors of them, 3 x 3, no strides, groups or dilation) and
// worth it: small convolutions are done before their filter is transformed.
bool Serves(const ConvGeometry& g);

// As RunConvolution, of float. The same bits on any number of threads.
Status Run(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c);

}  // namespace millrace::conv::winograd
