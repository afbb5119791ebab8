// Grouped convolutions and their gradients, shared by Conv2D, Conv3D and DepthwiseConv2dNative.
#pragma once

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/conv_epilogue.h"
#include "millrace/ops/nn/window.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Sizes of one convolution. The filter is stored [spatial..., in_channels / groups, out_channels].
struct ConvGeometry {
  int rank = 2;
  bool channels_first = false;
  int64_t batch = 0;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t groups = 1;
  std::array<WindowDim, 3> dim = {};

  int64_t filter_inputs() const { return in_channels / groups; }
  int64_t in_pixels() const { return dim[0].in * dim[1].in * dim[2].in; }
  int64_t out_pixels() const { return dim[0].out * dim[1].out * dim[2].out; }
  int64_t window_pixels() const { return dim[0].window * dim[1].window * dim[2].window; }
  int64_t filter_size() const { return window_pixels() * filter_inputs() * out_channels; }
  double flops_per_image() const {
    return 2.0 * static_cast<double>(out_pixels()) * static_cast<double>(filter_size());
  }
  friend bool operator==(const ConvGeometry&, const ConvGeometry&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ConvGeometry& g) {
    return H::combine(std::move(h), g.rank, g.channels_first, g.batch, g.in_channels, g.out_channels, g.groups, g.dim);
  }
};

enum class ConvKind { kForward, kBackwardInput, kBackwardFilter };

// The geometry for the shapes of input and filter; INVALID_ARGUMENT, naming the dimensions, if they are incompatible. A
// depthwise filter is [height, width, channels, multiplier].
StatusOr<ConvGeometry> MakeConvGeometry(const WindowAttrs& attrs, const Shape& input, const Shape& filter,
                                        bool depthwise);
Shape ConvOutputShape(const WindowAttrs& attrs, const ConvGeometry& g);

// kForward: a = input, b = filter, c = output. kBackwardInput: a = filter, b = gradient of the output, c = gradient of
// the input. kBackwardFilter: a = input, b = gradient of the output, c = gradient of the filter. Supports float, half,
// bfloat16, double and int32; an epilogue's bias only with kForward of float, half and bfloat16, its addend only with
// kBackwardInput of float, its moments only with kForward of float and without a bias.
Status RunConvolution(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const Tensor& a, const Tensor& b,
                      Tensor* c, const ConvEpilogue& epilogue = {});

// What one of the three ops of a family convolves: `Conv*`, `Conv*BackpropInput*`, `Conv*BackpropFilter*`.
class ConvOp {
 public:
  explicit ConvOp(KernelInit& init);

  struct Call {
    ConvGeometry geometry;
    const Tensor *a, *b;  // as RunConvolution has them
    Shape result;
  };
  // Reads the shapes and, unless they are tensors', the sizes, which are in host memory.
  StatusOr<Call> Get(KernelContext& ctx) const;
  ConvKind kind() const { return kind_; }

 private:
  ConvKind kind_ = ConvKind::kForward;
  bool depthwise_ = false;
  // Conv3DBackpropInput and Conv3DBackpropFilter take tensors instead of shapes.
  bool sizes_are_tensors_ = false;
  WindowAttrs attrs_;
};

class ConvKernel : public Kernel {
 public:
  explicit ConvKernel(KernelInit& init);
  Status Compute(KernelContext& ctx) override;

 private:
  const ConvOp op_;
  const bool has_addend_;  // _FusedConv2DBackpropInput
};

Status ConvShape(ShapeContext& c);
Status ConvBackpropInputShape(ShapeContext& c);
Status ConvBackpropFilterShape(ShapeContext& c);

// Implementations of RunConvolution; the results of both are independent of the number of threads.
namespace conv {
// Applies the epilogue to images [begin, end) of the output.
void ApplyToImages(const ConvEpilogue& epilogue, const ConvGeometry& g, int64_t begin, int64_t end, float* y);
// The moments that `epilogue` asks for, of the whole output.
Status OutputMoments(KernelContext& ctx, const ConvGeometry& g, const float* y, const ConvEpilogue& epilogue);
// oneDNN or Winograd, in fixed pieces of the batch. c may be epilogue.addend.
Status RunFloat(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
                const ConvEpilogue& epilogue);
// Plain loops, for cases that oneDNN does not support or is slow in.
template <typename T>
void RunLoops(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const T* a, const T* b, T* c);
extern template void RunLoops<float>(KernelContext&, ConvKind, const ConvGeometry&, const float*, const float*, float*);
extern template void RunLoops<double>(KernelContext&, ConvKind, const ConvGeometry&, const double*, const double*,
                                      double*);
extern template void RunLoops<uint32_t>(KernelContext&, ConvKind, const ConvGeometry&, const uint32_t*, const uint32_t*,
                                        uint32_t*);
}  // namespace conv

}  // namespace millrace
