#include "millrace/ops/fused/fused_activation.h"

#include <algorithm>
#include <cmath>

#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

// Calls fn(x, scratch, n) on short pieces of a row.
template <typename Fn>
void InBlocks(float* x, int64_t n, Fn fn) {
  constexpr int64_t kBlock = 256;
  float scratch[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) fn(x + i, scratch, std::min(kBlock, n - i));
}

}  // namespace

StatusOr<Activation> ParseActivation(const std::string& name) {
  if (name == "Relu") return Activation::kRelu;
  if (name == "Relu6") return Activation::kRelu6;
  if (name == "Elu") return Activation::kElu;
  if (name == "LeakyRelu") return Activation::kLeakyRelu;
  if (name == "Tanh") return Activation::kTanh;
  if (name == "Sigmoid") return Activation::kSigmoid;
  if (name == "GeluApproximate") return Activation::kGeluApproximate;
  if (name == "GeluExact") return Activation::kGeluExact;
  return Unimplemented("fused op ", name);
}

void Activate(Activation activation, float alpha, float* x, int64_t n) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      for (int64_t i = 0; i < n; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
      return;
    case Activation::kRelu6:
      for (int64_t i = 0; i < n; ++i) {
        const float low = x[i] < 0.0f ? 0.0f : x[i];
        x[i] = low > 6.0f ? 6.0f : low;
      }
      return;
    case Activation::kLeakyRelu:
      for (int64_t i = 0; i < n; ++i) x[i] = x[i] > 0.0f ? x[i] : x[i] * alpha;
      return;
    case Activation::kTanh:
      vector::Tanh(x, x, n);
      return;
    case Activation::kSigmoid:
      vector::Sigmoid(x, x, n);
      return;
    case Activation::kElu:
      InBlocks(x, n, [](float* y, float* e, int64_t size) {
        vector::Expm1(y, e, size);
        for (int64_t i = 0; i < size; ++i) y[i] = y[i] < 0.0f ? e[i] : y[i];
      });
      return;
    case Activation::kGeluApproximate:
      InBlocks(x, n, [](float* y, float* t, int64_t size) {
        for (int64_t i = 0; i < size; ++i) {
          t[i] = 0.7978845608028654f * (y[i] + 0.044715f * y[i] * y[i] * y[i]);
        }
        vector::Tanh(t, t, size);
        for (int64_t i = 0; i < size; ++i) y[i] = 0.5f * y[i] * (1.0f + t[i]);
      });
      return;
    case Activation::kGeluExact:
      for (int64_t i = 0; i < n; ++i) {
        x[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
      }
      return;
  }
}

}  // namespace millrace
