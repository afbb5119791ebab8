#include "bench/rnn.h"

#include <random>

namespace millrace::bench {
namespace {

Tensor RandomNormal(Shape shape, float scale, int seed) {
  Tensor t(DType::kFloat, std::move(shape));
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (float& x : t.flat<float>()) x = scale * std::normal_distribution<float>()(random);
  return t;
}

}  // namespace

Rnn BuildRnn(const Scope& scope) {
  const Var x(scope, "x", RandomNormal(Shape({kRnnSteps, kRnnBatch, kRnnHidden}), 1.0f, 1), {.trainable = false});
  const Var w(scope, "w", RandomNormal(Shape({2 * kRnnHidden, kRnnHidden}), 0.05f, 2));
  const Var b(scope, "b", Tensor::FromVector(std::vector<float>(kRnnHidden, 0.0f)));
  const Output inputs = x.Read(scope), weights = w.Read(scope), bias = b.Read(scope);
  const Output zero = ops::Const(scope, 0);
  const Output start = ops::Fill(scope, ops::Const(scope, {kRnnBatch, kRnnHidden}), 0.0f);
  const std::vector<Output> last = While(
      scope, {zero, start}, [](const Scope&, const std::vector<Output>& v) { return v[0] < kRnnSteps; },
      [&](const Scope& s, const std::vector<Output>& v) {
        const Output now = ops::GatherV2(s, inputs, v[0], 0);
        const Output both = ops::ConcatV2(s, {now, v[1]}, 1);
        const Output h = ops::Tanh(s, ops::BiasAdd(s, ops::MatMul(s, both, weights), bias));
        return std::vector<Output>{v[0] + 1, h};
      },
      {.parallel_iterations = 32});
  Rnn rnn;
  rnn.loss = ops::Mean(scope, ops::Square(scope, last[1]), {0, 1});
  optimizers::GradientDescent sgd({.learning_rate = 0.01});
  rnn.train = sgd.Minimize(scope, rnn.loss);
  return rnn;
}

}  // namespace millrace::bench
