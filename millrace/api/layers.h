// Layers: functions from tensors to tensors that create their own variables.
//
//   Output h = layers::Dense(scope, x, 256, {.activation = ops::Relu});
//
// Their nodes are in a sub-scope with the name set by WithOpName, by default that of the layer ("dense", "dense_1" and
// so on). In a variable scope that reuses (Scope::VariableScope), layers of one name share their weights. Images are
// [batch, height, width, channels].
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "millrace/api/initializers.h"
#include "millrace/api/input.h"
#include "millrace/api/regularizers.h"

namespace millrace::layers {

// An activation function: ops::Relu, ops::Tanh or any function of that signature. Null means none.
using Activation = std::function<Output(const Scope&, const Input&)>;

enum class Padding { kValid, kSame };

struct DenseOptions {
  Activation activation = nullptr;
  bool use_bias = true;
  Initializer kernel_initializer = init::GlorotUniform();
  Initializer bias_initializer = init::Zeros();
  // Strength of L2 regularization of the kernel; see losses::RegularizationLoss.
  double l2 = 0;
  bool trainable = true;
  // Also L1 and others; see regularizers.h.
  Regularizer kernel_regularizer = nullptr;
  Regularizer bias_regularizer = nullptr;
  Regularizer activity_regularizer = nullptr;  // of the layer's result
};
// activation(x * kernel + bias) over the last dimension of x, whose size must be known.
Output Dense(const Scope& scope, const Input& x, int64_t units, const DenseOptions& options = {});

struct Conv2DOptions {
  std::array<int64_t, 2> strides = {1, 1};
  std::array<int64_t, 2> dilations = {1, 1};
  Padding padding = Padding::kValid;
  Activation activation = nullptr;
  bool use_bias = true;
  Initializer kernel_initializer = init::GlorotUniform();
  Initializer bias_initializer = init::Zeros();
  double l2 = 0;
  bool trainable = true;
  // Also L1 and others; see regularizers.h.
  Regularizer kernel_regularizer = nullptr;
  Regularizer bias_regularizer = nullptr;
  Regularizer activity_regularizer = nullptr;  // of the layer's result
};
// `kernel` is the height and width of the window.
Output Conv2D(const Scope& scope, const Input& x, int64_t filters, std::array<int64_t, 2> kernel,
              const Conv2DOptions& options = {});

struct PoolOptions {
  // The default is the window's size.
  std::optional<std::array<int64_t, 2>> strides = std::nullopt;
  Padding padding = Padding::kValid;
};
Output MaxPool2D(const Scope& scope, const Input& x, std::array<int64_t, 2> window, const PoolOptions& options = {});
Output AvgPool2D(const Scope& scope, const Input& x, std::array<int64_t, 2> window, const PoolOptions& options = {});

struct BatchNormOptions {
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;  // adds a learnt offset
  bool scale = true;   // multiplies by a learnt scale
  bool trainable = true;
};
// Normalises over all dimensions except the last. `training` is a constant or a bool scalar tensor. In training the
// batch's own mean and variance are used, otherwise their moving averages. Training updates these by update ops
// (variable.h), which Optimizer::Minimize runs.
Output BatchNorm(const Scope& scope, const Input& x, const Input& training, const BatchNormOptions& options = {});

struct DropoutOptions {
  std::optional<int64_t> seed = std::nullopt;
};
// In training, sets a fraction `rate` in [0, 1) of the elements to 0 and scales the others up; otherwise returns x.
Output Dropout(const Scope& scope, const Input& x, double rate, const Input& training,
               const DropoutOptions& options = {});

// Reshapes x to [batch, product of the other dimensions].
Output Flatten(const Scope& scope, const Input& x);

}  // namespace millrace::layers
