// The epilogue of a convolution, applied to outputs while they are in the cache: a bias and an activation, or the
// output's moments, or for the gradient of an input another gradient that is added.
#pragma once

#include "millrace/ops/fused/fused_activation.h"

namespace millrace {

struct ConvEpilogue {
  const float* bias = nullptr;  // per channel; if null, there is no bias and no activation
  Activation activation = Activation::kNone;
  float alpha = 0;  // LeakyRelu's
  // The rest is not applied by the functions below. Of the output's size, or null; may be the output itself:
  const float* addend = nullptr;
  // Where to put the mean and the (biased) variance of each channel of the output, or null.
  float* mean = nullptr;
  float* variance = nullptr;

  // Applies it to `pixels` consecutive pixels of `channels` channels.
  void Apply(float* x, int64_t pixels, int64_t channels) const;
  // Applies it to images whose channels are planes of `pixels` pixels.
  void ApplyToPlanes(float* x, int64_t images, int64_t pixels, int64_t channels) const;
};

}  // namespace millrace
