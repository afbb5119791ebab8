// Residual networks for images of 32x32 pixels (He et al., 2015 and 2016). bench/conv_nets.cc trains one too.
#pragma once

#include "millrace/millrace.h"

struct ResNetOptions {
  // The number of layers with weights, 6n + 2: 20, 32, 44, 56.
  int size = 20;
  // 1: normalisation and ReLU after each convolution. 2: before it, so that shortcuts are plain sums.
  int version = 1;
  int classes = 10;
  // Strength of L2 regularization of the kernels; see losses::RegularizationLoss.
  double weight_decay = 0;
};

// The logits [batch, classes] of images [batch, 32, 32, 3]. In training each batch is normalised by its own statistics,
// whose moving averages inference uses; build both in variable scopes of one name to share the weights. The scope fails
// with INVALID_ARGUMENT for another size or version.
millrace::Output ResNetLogits(const millrace::Scope& scope, const millrace::Output& images, bool training,
                              const ResNetOptions& options = {});
