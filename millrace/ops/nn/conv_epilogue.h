// The epilogue of a convolution, applied to outputs while they are in the cache: a bias and an activation.
#pragma once

#include "millrace/ops/fused/fused_activation.h"

namespace millrace {

struct ConvEpilogue {
  const float* bias = nullptr;  // per channel; if null, the epilogue is a no-op
  Activation activation = Activation::kNone;
  float alpha = 0;  // LeakyRelu's

  // Applies it to `pixels` consecutive pixels of `channels` channels.
  void Apply(float* x, int64_t pixels, int64_t channels) const;
  // Applies it to images whose channels are planes of `pixels` pixels.
  void ApplyToPlanes(float* x, int64_t images, int64_t pixels, int64_t channels) const;
};

}  // namespace millrace
