// The passes over images that batch normalisation is made of: moments, normalisation, sums for the
// gradient, gradient. Each reads memory once; pieces are fixed by size and summed in order.
#pragma once

#include "millrace/ops/nn/channel_sums.h"

namespace millrace::batch_norm {

// The mean and the (biased) variance of each channel.
Status Moments(KernelContext& ctx, const ChannelBlocks& v, const float* x, float* mean, float* variance);

// z = (x - mean) * factor + offset by channel, then what was fused to it: y = relu(z + side).
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

// What flows back into z: dy, or where a relu followed, dy where its output is above 0.
struct Backward {
  const float* dy;
  const float* x;
  Affine affine;
  bool relu = false;
  const float* y = nullptr;  // the relu's output; null: it is computed again from x
  float* dz = nullptr;       // where dz goes, may be dy; null: it is computed again when needed
};

// doffset = sum of dz, dscale = sum of dz * (x - mean); writes dz where that is wanted.
Status GradientSums(KernelContext& ctx, const ChannelBlocks& v, const Backward& b, float* doffset, float* dscale);

// dx = slope * (dz - shift - (x - mean) * tilt) by channel.
struct Slopes {
  const float* slope;
  const float* shift;
  const float* tilt;
};
Status GradientOfInput(KernelContext& ctx, const ChannelBlocks& v, const Backward& b, const Slopes& s, float* dx);

}  // namespace millrace::batch_norm
