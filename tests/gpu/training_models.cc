#include "tests/gpu/training_models.h"

#include "absl/strings/str_cat.h"
#include "examples/resnet_cifar/resnet.h"

namespace millrace {
namespace {

// Numbers in [0, 1), the same on every machine.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  float Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(state_ >> 40) / static_cast<float>(1 << 24);
  }

 private:
  uint64_t state_;
};

constexpr int kClasses = 10;

// Noise over a pattern of the class, so that there is something to learn.
std::vector<Tensor> Pictures(const Shape& shape, int64_t step) {
  Tensor images(DType::kFloat, shape), labels(DType::kInt64, Shape({shape.dim(0)}));
  const int64_t size = shape.num_elements() / shape.dim(0);
  Numbers noise(static_cast<uint64_t>(step));
  for (int64_t i = 0; i < shape.dim(0); ++i) {
    const int64_t label = std::min<int64_t>(static_cast<int64_t>(noise.Next() * kClasses), kClasses - 1);
    labels.data<int64_t>()[i] = label;
    Numbers pattern(static_cast<uint64_t>(1000 + label));
    float* const image = images.data<float>() + i * size;
    for (int64_t k = 0; k < size; ++k) image[k] = 0.5f * pattern.Next() + noise.Next() - 0.75f;
  }
  return {images, labels};
}

TrainingModel Classifier(const Scope& scope, const Shape& shape, Optimizer& optimizer,
                         const std::function<Output(const Output&)>& logits) {
  const Output images = ops::Placeholder(scope, DType::kFloat, {.shape = shape});
  const Output labels = ops::Placeholder(scope, DType::kInt64, {.shape = {shape.dim(0)}});
  const Output loss = losses::SparseSoftmaxCrossEntropy(scope, labels, logits(images));
  return {.feeds = {images, labels},
          .loss = loss,
          .train = optimizer.Minimize(scope, loss),
          .batch = [shape](int64_t step) { return Pictures(shape, step); }};
}

Output Perceptron(const Scope& scope, const Output& images) {
  return layers::Dense(scope, layers::Dense(scope, images, 100, {.activation = ops::Relu}), kClasses);
}

TrainingModel Mlp(const Scope& scope, int64_t batch) {
  optimizers::GradientDescent sgd({.learning_rate = 0.1});
  return Classifier(scope, Shape({batch, 784}), sgd, [&](const Output& x) { return Perceptron(scope, x); });
}

TrainingModel Adam(const Scope& scope, int64_t batch) {
  optimizers::Adam adam({.learning_rate = 0.001});
  return Classifier(scope, Shape({batch, 784}), adam, [&](const Output& x) { return Perceptron(scope, x); });
}

TrainingModel Conv(const Scope& scope, int64_t batch) {
  optimizers::Momentum momentum({.learning_rate = 0.01, .momentum = 0.9});
  return Classifier(scope, Shape({batch, 28, 28, 1}), momentum, [&](Output h) {
    for (const int filters : {32, 64}) {
      h = layers::Conv2D(scope, h, filters, {5, 5}, {.padding = layers::Padding::kSame, .activation = ops::Relu});
      h = layers::MaxPool2D(scope, h, {2, 2});
    }
    h = layers::Dense(scope, layers::Flatten(scope, h), 128, {.activation = ops::Relu});
    return layers::Dense(scope, h, kClasses);
  });
}

TrainingModel ResNet(const Scope& scope, int64_t batch) {
  optimizers::Momentum momentum({.learning_rate = 0.01, .momentum = 0.9});
  return Classifier(scope, Shape({batch, 32, 32, 3}), momentum, [&](const Output& x) {
    return ResNetLogits(scope, x, /*training=*/true, {.size = 20, .version = 1});
  });
}

constexpr int64_t kCharacters = 64;

// Texts of a language in which a character mostly follows from the one before.
std::vector<Tensor> Texts(const Shape& shape, bool time_major, int64_t step) {
  Tensor inputs(DType::kInt32, shape), targets(DType::kInt32, shape);
  const int64_t texts = shape.dim(time_major ? 1 : 0), length = shape.dim(time_major ? 0 : 1);
  Numbers numbers(static_cast<uint64_t>(step));
  for (int64_t text = 0; text < texts; ++text) {
    int32_t now = static_cast<int32_t>(numbers.Next() * kCharacters);
    for (int64_t t = 0; t < length; ++t) {
      const int64_t at = time_major ? t * texts + text : text * length + t;
      inputs.data<int32_t>()[at] = now;
      now = numbers.Next() < 0.8f ? (5 * now + 3) % kCharacters : static_cast<int32_t>(numbers.Next() * kCharacters);
      targets.data<int32_t>()[at] = now;
    }
  }
  return {inputs, targets};
}

TrainingModel Language(const Scope& scope, const Shape& shape, bool time_major, int width,
                       const std::function<Output(const Output&)>& logits) {
  const PartialShape partial({shape.dim(0), shape.dim(1)});
  const Output inputs = ops::Placeholder(scope, DType::kInt32, {.shape = partial});
  const Output targets = ops::Placeholder(scope, DType::kInt32, {.shape = partial});
  const Var embedding(scope, "embedding", {kCharacters, width}, init::RandomNormal({.stddev = 0.1}));
  const Output loss = losses::SequenceLoss(scope, logits(EmbeddingLookup(scope, {embedding}, inputs)), targets);
  return {.feeds = {inputs, targets},
          .loss = loss,
          .train = optimizers::Adam({.learning_rate = 0.002}).Minimize(scope, loss),
          .batch = [shape, time_major](int64_t step) { return Texts(shape, time_major, step); }};
}

TrainingModel Lstm(const Scope& scope, int64_t batch) {
  return Language(scope, Shape({35, batch}), /*time_major=*/true, 128, [&](const Output& x) {
    const rnn::Sequence sequence = rnn::DynamicRnn(scope, rnn::LstmCell(128), x, {.time_major = true});
    return layers::Dense(scope, sequence.outputs, kCharacters);
  });
}

Output TransformerBlock(const Scope& scope, Output x, int width) {
  Output h = layers::LayerNormalization(scope, x, {.epsilon = 1e-5});
  x = x + layers::MultiHeadAttention(scope, h, h, {.heads = 4, .causal = true});
  h = layers::LayerNormalization(scope, x, {.epsilon = 1e-5});
  const auto gelu = [](const Scope& s, const Input& in) { return layers::Gelu(s, in, true); };
  return x + layers::Dense(scope, layers::Dense(scope, h, 4 * width, {.activation = gelu}), width);
}

TrainingModel Transformer(const Scope& scope, int64_t batch) {
  constexpr int kWidth = 128, kTime = 64;
  return Language(scope, Shape({batch, kTime}), /*time_major=*/false, kWidth, [&](Output x) {
    x = x + layers::LearntPositions(scope, x, kTime);
    for (int i = 0; i < 2; ++i) x = TransformerBlock(scope.SubScope(absl::StrCat("layer_", i)), x, kWidth);
    return layers::Dense(scope, layers::LayerNormalization(scope, x, {.epsilon = 1e-5}), kCharacters);
  });
}

}  // namespace

const std::vector<NamedModel>& TrainingModels() {
  static const auto* const models = new std::vector<NamedModel>{{"mlp", 100, Mlp},  {"adam", 100, Adam},
                                                                {"lstm", 32, Lstm}, {"transformer", 16, Transformer},
                                                                {"conv", 64, Conv}, {"resnet20", 128, ResNet}};
  return *models;
}

}  // namespace millrace
