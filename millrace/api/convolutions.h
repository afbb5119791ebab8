// Convolutions and pooling in one, two and three dimensions, transposed and separable: the rest of tf.layers. The last
// dimension of the input is that of the channels.
//
//   Output h = layers::Conv1D(scope, x, 64, 5, {.padding = layers::Padding::kSame, .activation = ops::Relu});
//   Output image = layers::Conv2DTranspose(scope, h, 3, {4, 4}, {.strides = {2, 2}});
//
// Names, variables and defaults are those of tf.layers.
#pragma once

#include <array>
#include <optional>

#include "millrace/api/layers.h"

namespace millrace::layers {

// A size for each of N dimensions.
template <size_t N>
using Window = std::array<int64_t, N>;

template <size_t N>
constexpr Window<N> OnesWindow() {
  Window<N> ones{};
  for (int64_t& one : ones) one = 1;
  return ones;
}

template <size_t N>
struct ConvOptions {
  Window<N> strides = OnesWindow<N>();
  Window<N> dilations = OnesWindow<N>();
  Padding padding = Padding::kValid;
  Activation activation = nullptr;
  bool use_bias = true;
  Initializer kernel_initializer = init::GlorotUniform();
  Initializer bias_initializer = init::Zeros();
  Regularizer kernel_regularizer = nullptr;
  Regularizer bias_regularizer = nullptr;
  Regularizer activity_regularizer = nullptr;
  bool trainable = true;
};
using Conv1DOptions = ConvOptions<1>;
using Conv3DOptions = ConvOptions<3>;

// x: [batch, steps, channels]
Output Conv1D(const Scope& scope, const Input& x, int64_t filters, int64_t kernel, const Conv1DOptions& options = {});
// x: [batch, depth, height, width, channels]
Output Conv3D(const Scope& scope, const Input& x, int64_t filters, Window<3> kernel, const Conv3DOptions& options = {});

template <size_t N>
struct ConvTransposeOptions {
  Window<N> strides = OnesWindow<N>();
  Padding padding = Padding::kValid;
  Activation activation = nullptr;
  bool use_bias = true;
  Initializer kernel_initializer = init::GlorotUniform();
  Initializer bias_initializer = init::Zeros();
  Regularizer kernel_regularizer = nullptr;
  Regularizer bias_regularizer = nullptr;
  Regularizer activity_regularizer = nullptr;
  bool trainable = true;
};
// From the output of a convolution to an input of it: with strides s, sizes grow by s. The kernel is [height, width,
// filters, channels].
Output Conv2DTranspose(const Scope& scope, const Input& x, int64_t filters, Window<2> kernel,
                       const ConvTransposeOptions<2>& options = {});
Output Conv3DTranspose(const Scope& scope, const Input& x, int64_t filters, Window<3> kernel,
                       const ConvTransposeOptions<3>& options = {});

template <size_t N>
struct SeparableConvOptions {
  Window<N> strides = OnesWindow<N>();
  Window<N> dilations = OnesWindow<N>();
  Padding padding = Padding::kValid;
  int64_t depth_multiplier = 1;  // how many results the first convolution has for each channel
  Activation activation = nullptr;
  bool use_bias = true;
  Initializer depthwise_initializer = init::GlorotUniform();
  Initializer pointwise_initializer = init::GlorotUniform();
  Initializer bias_initializer = init::Zeros();
  Regularizer depthwise_regularizer = nullptr;
  Regularizer pointwise_regularizer = nullptr;
  Regularizer bias_regularizer = nullptr;
  Regularizer activity_regularizer = nullptr;
  bool trainable = true;
};
// A convolution of each channel by itself, and then one of 1 x 1 over the channels. In two dimensions the strides must
// be equal.
Output SeparableConv1D(const Scope& scope, const Input& x, int64_t filters, int64_t kernel,
                       const SeparableConvOptions<1>& options = {});
Output SeparableConv2D(const Scope& scope, const Input& x, int64_t filters, Window<2> kernel,
                       const SeparableConvOptions<2>& options = {});

template <size_t N>
struct PoolingOptions {
  // The default is the window's size.
  std::optional<Window<N>> strides = std::nullopt;
  Padding padding = Padding::kValid;
};
// x: [batch, steps, channels]
Output MaxPool1D(const Scope& scope, const Input& x, int64_t window, const PoolingOptions<1>& options = {});
Output AvgPool1D(const Scope& scope, const Input& x, int64_t window, const PoolingOptions<1>& options = {});
// x: [batch, depth, height, width, channels]
Output MaxPool3D(const Scope& scope, const Input& x, Window<3> window, const PoolingOptions<3>& options = {});
Output AvgPool3D(const Scope& scope, const Input& x, Window<3> window, const PoolingOptions<3>& options = {});

}  // namespace millrace::layers
