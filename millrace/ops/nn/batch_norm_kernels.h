// Kernels shared by all versions of batch normalisation, including the fused ones with a side input and a relu.
#pragma once

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/channel_blocks.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

Status BatchNormShape(ShapeContext& c);
Status BatchNormGradShape(ShapeContext& c);

struct BatchNormAttrs {
  float epsilon = 0;
  bool training = true;
  bool channels_first = false;
  int64_t num_side_inputs = 0;
  bool relu = false;
  bool moments_given = false;  // in training: inputs mean and variance are those of the batch

  explicit BatchNormAttrs(KernelInit& init);
};

// The shape of x by channel, when the inputs of BatchNormKernel fit each other; `factor` is exponential_avg_factor.
StatusOr<ChannelBlocks> CheckBatchNorm(KernelContext& ctx, const BatchNormAttrs& attrs, float factor);
// The same of BatchNormGradKernel.
StatusOr<ChannelBlocks> CheckBatchNormGrad(KernelContext& ctx, const BatchNormAttrs& attrs);

// Inputs: x, scale, offset, mean, variance and optionally a side input. FusedBatchNorm, V2, V3 and _FusedBatchNormEx.
class BatchNormKernel : public Kernel {
 public:
  explicit BatchNormKernel(KernelInit& init);
  Status Compute(KernelContext& ctx) override;

 private:
  Status SetMoments(KernelContext& ctx, const ChannelBlocks& v, const float* x, float* const out[4]) const;

  const BatchNormAttrs attrs_;
  float factor_ = 1;
};

// Inputs: dy, x, scale, the mean and the variance that x was normalised with; for _FusedBatchNormGradEx also
// another reserve, offset and y.
class BatchNormGradKernel : public Kernel {
 public:
  explicit BatchNormGradKernel(KernelInit& init) : attrs_(init) {}
  Status Compute(KernelContext& ctx) override;

 private:
  Status Gradients(KernelContext& ctx, const ChannelBlocks& v, const float* dy, const float* x, float* dz, float* dx,
                   float* dscale, float* doffset) const;

  const BatchNormAttrs attrs_;
};

}  // namespace millrace
