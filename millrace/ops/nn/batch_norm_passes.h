// The passes over images of batch normalisation: moments, normalisation, sums for the gradient, gradient. Each reads
// memory once; the division into pieces depends only on the size, and they are summed in order.
#pragma once

#include "millrace/ops/nn/channel_blocks.h"
#include "millrace/runtime/kernel.h"

namespace millrace::batch_norm {

// The mean and the (biased) variance of each channel.
Status Moments(KernelContext& ctx, const ChannelBlocks& v, const float* x, float* mean, float* variance);

// z = (x - mean) * factor + offset per channel, then the fused ops: y = relu(z + side).
struct Affine {
  const float* mean;
  const float* factor;
  const float* offset;
};
struct Fused {
  const float* side = nullptr;
  bool relu = false;
};
Status Normalise(KernelContext& ctx, const ChannelBlocks& v, const float* x, const Affine& affine, const Fused& fused,
                 float* y);

// The gradient of z: dy or, with a relu, dy where its output is positive.
struct Backward {
  const float* dy;
  const float* x;
  Affine affine;
  bool relu = false;
  const float* y = nullptr;  // the relu's output; if null, it is recomputed from x
  float* dz = nullptr;       // the output for dz, may alias dy; if null, dz is recomputed when needed
};

// doffset = sum of dz, dscale = sum of dz * (x - mean); writes dz if b.dz is set.
Status GradientSums(KernelContext& ctx, const ChannelBlocks& v, const Backward& b, float* doffset, float* dscale);

// dx = slope * (dz - shift - (x - mean) * tilt) per channel.
struct Slopes {
  const float* slope;
  const float* shift;
  const float* tilt;
};
Status GradientOfInput(KernelContext& ctx, const ChannelBlocks& v, const Backward& b, const Slopes& s, float* dx);

}  // namespace millrace::batch_norm
