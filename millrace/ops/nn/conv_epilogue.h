// What is done to a convolution's outputs while they are in the cache: a bias and an activation.
#pragma once

#include "millrace/ops/nn/fused_activation.h"

namespace millrace {

struct ConvEpilogue {
  const float* bias = nullptr;  // by channel; null: there is nothing to do
  Activation activation = Activation::kNone;
  float alpha = 0;  // LeakyRelu's

  // To `pixels` pixels of `channels` channels, side by side.
  void Apply(float* x, int64_t pixels, int64_t channels) const;
  // To whole images whose channels are planes of `pixels` pixels.
  void ApplyToPlanes(float* x, int64_t images, int64_t pixels, int64_t channels) const;
};

}  // namespace millrace
