#include "bench/conv_nets.h"

#include "bench/measure.h"
#include "examples/resnet_cifar/resnet.h"

namespace millrace::bench {
namespace {

constexpr auto kSame = layers::Padding::kSame;

Output ResNet20Logits(const Scope& scope, const Output& images) {
  return ResNetLogits(scope, images, /*training=*/true, {.size = 20, .version = 1});
}

Output ConvMnistLogits(const Scope& scope, const Output& images) {
  Output h = images;
  for (const int filters : {32, 64}) {
    h = layers::Conv2D(scope, h, filters, {5, 5}, {.padding = kSame, .activation = ops::Relu});
    h = layers::MaxPool2D(scope, h, {2, 2});
  }
  h = layers::Dense(scope, layers::Flatten(scope, h), 512, {.activation = ops::Relu});
  return layers::Dense(scope, h, 10);
}

using Logits = Output (*)(const Scope&, const Output&);

// Training steps per second, feeds included.
double StepsPerSecond(const Flags& flags, const Shape& batch, Logits logits, Optimizer& optimizer) {
  const Scope scope = Scope::NewRoot();
  const int rows = static_cast<int>(batch.dim(0));
  const Output x = ops::Placeholder(scope, DType::kFloat, {.shape = batch});
  const Output labels = ops::Placeholder(scope, DType::kInt32, {.shape = {rows}});
  const Output loss = losses::SparseSoftmaxCrossEntropy(scope, labels, logits(scope, x));
  const Operation train = optimizer.Minimize(scope, loss);
  const Operation init = GlobalVariablesInitializer(scope);
  ClientSession session = Check(ClientSession::Create(scope, Options(flags)));
  Check(session.Run(init));
  const Tensor feeds[] = {RandomFeatures(batch), RandomLabels(rows, 10)};
  if (!flags.trace.empty()) WriteTrace(flags, session, {{x, feeds[0]}, {labels, feeds[1]}}, loss, train);
  Step step = Check(session.MakeStep({x, labels}, {loss}, {train}));
  Tensors results;
  return Rate(flags.seconds, [&] { Check(step.callable().Run(feeds, &results)); }, {.warm = 4, .chunk = 1});
}

}  // namespace

void ResNet20(const Flags& flags) {
  optimizers::Momentum momentum({.learning_rate = 0.1, .momentum = 0.9});
  Emit(flags, "resnet20", "images/s", 128 * StepsPerSecond(flags, Shape({128, 32, 32, 3}), ResNet20Logits, momentum));
}

void ConvMnist(const Flags& flags) {
  optimizers::GradientDescent sgd({.learning_rate = 0.01});
  Emit(flags, "conv_mnist", "steps/s", StepsPerSecond(flags, Shape({64, 28, 28, 1}), ConvMnistLogits, sgd));
}

}  // namespace millrace::bench
