#include "examples/resnet_cifar/resnet.h"

#include <cmath>

using namespace millrace;

namespace {

// Blocks of one network.
struct Builder {
  const Scope& scope;
  const bool training;
  const ResNetOptions& options;

  Output Conv(const Output& x, int filters, int window, int stride) const {
    const double stddev = std::sqrt(2.0 / (window * window * filters));
    return layers::Conv2D(scope, x, filters, {window, window},
                          {.strides = {stride, stride},
                           .padding = layers::Padding::kSame,
                           .use_bias = false,
                           .kernel_initializer = init::RandomNormal({.stddev = stddev}),
                           .l2 = options.weight_decay});
  }

  Output Norm(const Output& x) const {
    return layers::BatchNorm(scope, x, training, {.momentum = 0.9, .epsilon = 1e-5});
  }

  Output NormRelu(const Output& x) const { return ops::Relu(scope, Norm(x)); }

  // Two convolutions with a shortcut connection, which has a convolution of its own if sizes change.
  Output Block(const Output& x, int filters, int stride) const {
    if (options.version == 1) {
      const Output y = Norm(Conv(NormRelu(Conv(x, filters, 3, stride)), filters, 3, 1));
      const Output shortcut = stride == 1 ? x : Norm(Conv(x, filters, 1, stride));
      return ops::Relu(scope, y + shortcut);
    }
    const Output in = NormRelu(x);
    const Output y = Conv(NormRelu(Conv(in, filters, 3, stride)), filters, 3, 1);
    return y + (stride == 1 ? x : Conv(in, filters, 1, stride));
  }
};

}  // namespace

Output ResNetLogits(const Scope& scope, const Output& images, bool training, const ResNetOptions& options) {
  if (options.size < 8 || options.size % 6 != 2) {
    scope.UpdateStatus(InvalidArgument("there is no ResNet-", options.size, " for CIFAR: the size is 6n + 2"));
  }
  if (options.version != 1 && options.version != 2) {
    scope.UpdateStatus(InvalidArgument("there is no version ", options.version, " of ResNet, only 1 and 2"));
  }
  if (!scope.ok()) return Output(scope, Endpoint{});
  const Builder build{scope, training, options};
  const int blocks = (options.size - 2) / 6;
  Output h = build.Conv(images, 16, 3, 1);
  if (options.version == 1) h = build.NormRelu(h);
  for (const int filters : {16, 32, 64}) {
    for (int i = 0; i < blocks; ++i) h = build.Block(h, filters, i == 0 && filters > 16 ? 2 : 1);
  }
  if (options.version == 2) h = build.NormRelu(h);
  return layers::Dense(scope, ops::Mean(scope, h, std::vector<int32_t>{1, 2}), options.classes,
                       {.l2 = options.weight_decay});
}
