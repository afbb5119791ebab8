#include "millrace/api/convolutions.h"

#include <algorithm>

#include "millrace/api/layer_parts.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"

namespace millrace::layers {
namespace {

using api_internal::MakeWeight;
using api_internal::PaddingName;

// {1, sizes, 1}: a size for each dimension of a tensor.
template <size_t N>
std::vector<int64_t> WithBatchAndChannels(const Window<N>& sizes) {
  std::vector<int64_t> all(N + 2, 1);
  std::copy(sizes.begin(), sizes.end(), all.begin() + 1);
  return all;
}

template <size_t N>
Shape KernelShape(const Window<N>& window, int64_t rows, int64_t columns) {
  std::vector<int64_t> dims(window.begin(), window.end());
  dims.push_back(rows);
  dims.push_back(columns);
  return Shape(dims);
}

// The number of channels, or -1 after an error.
template <size_t N>
int64_t CheckConvolution(const Scope& s, const Output& in, int64_t filters, const Window<N>& kernel,
                         const Window<N>& strides) {
  const int64_t channels = api_internal::LastDim(s, in, N + 2);
  if (channels < 0 || !api_internal::CheckPositive(s, "the number of filters", filters)) return -1;
  if (in.shape().rank() != N + 2) {
    s.UpdateStatus(InvalidArgument("layer ", s.prefix(), ": the input ", in.name(), " of shape ", in.shape().ToString(),
                                   " must have ", N + 2, " dimensions"));
    return -1;
  }
  for (size_t i = 0; i < N; ++i) {
    if (!api_internal::CheckPositive(s, "a size of the window", kernel[i]) ||
        !api_internal::CheckPositive(s, "a stride", strides[i])) {
      return -1;
    }
  }
  return channels;
}

Output NoOutput(const Scope& s) { return Output(s, Endpoint{}); }

Output Expand(const Scope& s, const Output& x, int axis) { return Op(s, "ExpandDims", {x, axis}); }
Output SqueezeAxis(const Scope& s, const Output& x, int64_t axis) {
  return Op(s, "Squeeze", {x}, {{"squeeze_dims", std::vector<int64_t>{axis}}});
}

template <size_t N>
Output ConvTranspose(const Scope& scope, const char* name, const char* op, const Input& x, int64_t filters,
                     const Window<N>& kernel_size, const ConvTransposeOptions<N>& options) {
  const Scope s = scope.ForComposite(name);
  const Output in = x.In(s);
  const int64_t channels = CheckConvolution<N>(s, in, filters, kernel_size, options.strides);
  if (channels < 0) return NoOutput(s);
  const Output kernel =
      MakeWeight(s, "kernel", KernelShape<N>(kernel_size, filters, channels), options.kernel_initializer,
                 {in.dtype(), options.trainable, options.kernel_regularizer})
          .value;
  const Output sizes = Op(s, "Shape", {in});
  PartialShape shape = in.shape();
  std::vector<Input> dims;
  const auto size_of = [&](int i) {
    return Op(s, "StridedSlice", {sizes, std::vector<int32_t>{i}, std::vector<int32_t>{i + 1}, std::vector<int32_t>{1}},
              {{"shrink_axis_mask", 1}});
  };
  dims.push_back(shape.dim(0) < 0 ? Input(size_of(0)) : Input(static_cast<int32_t>(shape.dim(0))));
  for (size_t i = 0; i < N; ++i) {
    const int axis = static_cast<int>(i) + 1;
    const int64_t stride = options.strides[i];
    const int64_t more = options.padding == Padding::kValid ? std::max<int64_t>(kernel_size[i] - stride, 0) : 0;
    if (shape.dim(axis) >= 0) {
      shape.set_dim(axis, shape.dim(axis) * stride + more);
      dims.emplace_back(static_cast<int32_t>(shape.dim(axis)));
    } else {
      dims.emplace_back(size_of(axis) * static_cast<int32_t>(stride) + static_cast<int32_t>(more));
    }
  }
  shape.set_dim(N + 1, filters);
  dims.emplace_back(static_cast<int32_t>(filters));
  Output y = Op(s, op, {Op(s, "Pack", {InputList(dims)}), kernel, in},
                {{"strides", WithBatchAndChannels<N>(options.strides)}, {"padding", PaddingName(options.padding)}});
  // The sizes are values of the step, but what is known of them must not be lost.
  y = Op(s, "EnsureShape", {y}, {{"shape", shape}});
  return api_internal::FinishLayer(s, y, in.dtype(), filters, options);
}

// Of sequences (N = 1) or images.
template <size_t N>
Output Separable(const Scope& s, const Output& in, int64_t filters, const Window<N>& kernel_size,
                 const SeparableConvOptions<N>& options) {
  const int64_t channels = CheckConvolution<N>(s, in, filters, kernel_size, options.strides);
  if (channels < 0 || !api_internal::CheckPositive(s, "the depth multiplier", options.depth_multiplier))
    return NoOutput(s);
  const int64_t depth = channels * options.depth_multiplier;
  Output depthwise =
      MakeWeight(s, "depthwise_kernel", KernelShape<N>(kernel_size, channels, options.depth_multiplier),
                 options.depthwise_initializer, {in.dtype(), options.trainable, options.depthwise_regularizer})
          .value;
  Output pointwise =
      MakeWeight(s, "pointwise_kernel", KernelShape<N>(OnesWindow<N>(), depth, filters), options.pointwise_initializer,
                 {in.dtype(), options.trainable, options.pointwise_regularizer})
          .value;
  // In one dimension: images of one row.
  Window<2> strides = {options.strides[0], options.strides[N - 1]};
  Window<2> dilations = {N == 1 ? 1 : options.dilations[0], options.dilations[N - 1]};
  Output x = in;
  if constexpr (N == 1) {
    x = Expand(s, x, 1);
    depthwise = Expand(s, depthwise, 0);
    pointwise = Expand(s, pointwise, 0);
  }
  const Output each = Op(s, "DepthwiseConv2dNative", {x, depthwise},
                         {{"strides", WithBatchAndChannels<2>(strides)},
                          {"padding", PaddingName(options.padding)},
                          {"dilations", WithBatchAndChannels<2>(dilations)}});
  Output y = Op(s, "Conv2D", {each, pointwise},
                {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", PaddingName(Padding::kValid)}});
  if constexpr (N == 1) y = SqueezeAxis(s, y, 1);
  return api_internal::FinishLayer(s, y, in.dtype(), filters, options);
}

template <size_t N>
Status CheckPooling(const Scope& s, const Output& in, const Window<N>& window, const Window<N>& strides) {
  if (in.shape().known_rank() && in.shape().rank() != N + 2) {
    return InvalidArgument("layer ", s.prefix(), ": the input ", in.name(), " of shape ", in.shape().ToString(),
                           " must have ", N + 2, " dimensions");
  }
  for (size_t i = 0; i < N; ++i) {
    if (window[i] < 1 || strides[i] < 1)
      return InvalidArgument("layer ", s.prefix(), ": a window of ", window[i], " with strides of ", strides[i],
                             "; both must be positive");
  }
  return absl::OkStatus();
}

// Sequences are pooled as images of one column.
Output Pool1D(const Scope& scope, const char* name, const char* op, const Input& x, int64_t window,
              const PoolingOptions<1>& options) {
  const Scope s = scope.ForComposite(name);
  const Output in = x.In(s);
  const Window<1> strides = options.strides.value_or(Window<1>{window});
  if (s.ok()) s.UpdateStatus(CheckPooling<1>(s, in, {window}, strides));
  const Output pooled = Op(s, op, {Expand(s, in, 2)},
                           {{"ksize", std::vector<int64_t>{1, window, 1, 1}},
                            {"strides", std::vector<int64_t>{1, strides[0], 1, 1}},
                            {"padding", PaddingName(options.padding)}});
  return SqueezeAxis(s, pooled, 2);
}

Output Pool3D(const Scope& scope, const char* name, const char* op, const Input& x, const Window<3>& window,
              const PoolingOptions<3>& options) {
  const Scope s = scope.ForComposite(name);
  const Output in = x.In(s);
  const Window<3> strides = options.strides.value_or(window);
  if (s.ok()) s.UpdateStatus(CheckPooling<3>(s, in, window, strides));
  return Op(s, op, {in},
            {{"ksize", WithBatchAndChannels<3>(window)},
             {"strides", WithBatchAndChannels<3>(strides)},
             {"padding", PaddingName(options.padding)}});
}

}  // namespace

Output Conv1D(const Scope& scope, const Input& x, int64_t filters, int64_t kernel_size, const Conv1DOptions& options) {
  const Scope s = scope.ForComposite("conv1d");
  const Output in = x.In(s);
  const int64_t channels = CheckConvolution<1>(s, in, filters, {kernel_size}, options.strides);
  if (channels < 0) return NoOutput(s);
  const Output kernel = MakeWeight(s, "kernel", Shape({kernel_size, channels, filters}), options.kernel_initializer,
                                   {in.dtype(), options.trainable, options.kernel_regularizer})
                            .value;
  // As a convolution of images of one row.
  const Output y = Op(s, "Conv2D", {Expand(s, in, 1), Expand(s, kernel, 0)},
                      {{"strides", std::vector<int64_t>{1, 1, options.strides[0], 1}},
                       {"dilations", std::vector<int64_t>{1, 1, options.dilations[0], 1}},
                       {"padding", PaddingName(options.padding)}});
  return api_internal::FinishLayer(s, SqueezeAxis(s, y, 1), in.dtype(), filters, options);
}

Output Conv3D(const Scope& scope, const Input& x, int64_t filters, Window<3> kernel_size,
              const Conv3DOptions& options) {
  const Scope s = scope.ForComposite("conv3d");
  const Output in = x.In(s);
  const int64_t channels = CheckConvolution<3>(s, in, filters, kernel_size, options.strides);
  if (channels < 0) return NoOutput(s);
  const Output kernel =
      MakeWeight(s, "kernel", KernelShape<3>(kernel_size, channels, filters), options.kernel_initializer,
                 {in.dtype(), options.trainable, options.kernel_regularizer})
          .value;
  const Output y = Op(s, "Conv3D", {in, kernel},
                      {{"strides", WithBatchAndChannels<3>(options.strides)},
                       {"dilations", WithBatchAndChannels<3>(options.dilations)},
                       {"padding", PaddingName(options.padding)}});
  return api_internal::FinishLayer(s, y, in.dtype(), filters, options);
}

Output Conv2DTranspose(const Scope& scope, const Input& x, int64_t filters, Window<2> kernel,
                       const ConvTransposeOptions<2>& options) {
  return ConvTranspose<2>(scope, "conv2d_transpose", "Conv2DBackpropInput", x, filters, kernel, options);
}

Output Conv3DTranspose(const Scope& scope, const Input& x, int64_t filters, Window<3> kernel,
                       const ConvTransposeOptions<3>& options) {
  return ConvTranspose<3>(scope, "conv3d_transpose", "Conv3DBackpropInputV2", x, filters, kernel, options);
}

Output SeparableConv1D(const Scope& scope, const Input& x, int64_t filters, int64_t kernel,
                       const SeparableConvOptions<1>& options) {
  const Scope s = scope.ForComposite("separable_conv1d");
  return Separable<1>(s, x.In(s), filters, {kernel}, options);
}

Output SeparableConv2D(const Scope& scope, const Input& x, int64_t filters, Window<2> kernel,
                       const SeparableConvOptions<2>& options) {
  const Scope s = scope.ForComposite("separable_conv2d");
  return Separable<2>(s, x.In(s), filters, kernel, options);
}

Output MaxPool1D(const Scope& scope, const Input& x, int64_t window, const PoolingOptions<1>& options) {
  return Pool1D(scope, "max_pool1d", "MaxPool", x, window, options);
}
Output AvgPool1D(const Scope& scope, const Input& x, int64_t window, const PoolingOptions<1>& options) {
  return Pool1D(scope, "avg_pool1d", "AvgPool", x, window, options);
}
Output MaxPool3D(const Scope& scope, const Input& x, Window<3> window, const PoolingOptions<3>& options) {
  return Pool3D(scope, "max_pool3d", "MaxPool3D", x, window, options);
}
Output AvgPool3D(const Scope& scope, const Input& x, Window<3> window, const PoolingOptions<3>& options) {
  return Pool3D(scope, "avg_pool3d", "AvgPool3D", x, window, options);
}

}  // namespace millrace::layers
