// Elu and Selu: linear above zero, exponential below.
#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/vector_math.h"
#include "millrace/ops/nn/activation_kernels.h"

namespace millrace {
namespace {

// The constants with which Selu preserves mean 0 and variance 1.
constexpr double kScale = 1.0507009873554804934193349852946;
constexpr double kScaleAlpha = 1.7580993408473768599402175208123;

Status EluGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("EluGrad", {c.grad(), c.output(0)}));
  return absl::OkStatus();
}
// EluGrad(dy, y) = dy * (y < 0 ? y + 1 : 1).
Status EluGradGradient(GradientContext& c) {
  const Endpoint dy = c.input(0), y = c.input(1), g = c.grad();
  c.set_input_grad(0, c.Op("EluGrad", {g, y}));
  const Endpoint zeros = c.ZerosLike(y);
  c.set_input_grad(1, c.Op("SelectV2", {c.Op("Less", {y, zeros}), c.Mul(g, dy), zeros}));
  return absl::OkStatus();
}
Status SeluGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("SeluGrad", {c.grad(), c.output(0)}));
  return absl::OkStatus();
}
Status SeluGradGradient(GradientContext& c) {
  const Endpoint dy = c.input(0), y = c.input(1), g = c.grad();
  c.set_input_grad(0, c.Op("SeluGrad", {g, y}));
  const Endpoint zeros = c.ZerosLike(y);
  c.set_input_grad(1, c.Op("SelectV2", {c.Op("Less", {y, zeros}), c.Mul(g, dy), zeros}));
  return absl::OkStatus();
}

MILLRACE_OP(Elu)
    .Trait(OpTrait::kActivation)
    .Summary("x where it is above 0, exp(x) - 1 elsewhere.")
    .Input("features: T")
    .Output("activations: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(UnchangedShape)
    .Gradient(EluGradient);

MILLRACE_OP(EluGrad)
    .Summary("The gradient of Elu, from its outputs.")
    .Input("gradients: T")
    .Input("outputs: T")
    .Output("backprops: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(MergedShape)
    .Gradient(EluGradGradient);

MILLRACE_OP(Selu)
    .Summary("scale * x where x is above 0, scale * alpha * (exp(x) - 1) elsewhere.")
    .Input("features: T")
    .Output("activations: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(UnchangedShape)
    .Gradient(SeluGradient);

MILLRACE_OP(SeluGrad)
    .Summary("The gradient of Selu, from its outputs.")
    .Input("gradients: T")
    .Input("outputs: T")
    .Output("backprops: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(MergedShape)
    .Gradient(SeluGradGradient);

void ExpMinusOne(const float* x, float* y, int64_t n) { vector::Expm1(x, y, n); }
void ExpMinusOne(const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::expm1(x[i]);
}

// y = above * x where x >= 0, below * (exp(x) - 1) elsewhere.
template <typename C>
void LinearOrExponential(C above, C below, const C* x, C* y, int64_t n) {
  C e[kConvertBlock];
  for (int64_t begin = 0; begin < n; begin += kConvertBlock, x += kConvertBlock, y += kConvertBlock) {
    const int64_t size = std::min(kConvertBlock, n - begin);
    int negative = 0;
    for (int64_t i = 0; i < size; ++i) negative |= x[i] < C(0);
    if (negative != 0) ExpMinusOne(x, e, size);
    for (int64_t i = 0; i < size; ++i) y[i] = x[i] < C(0) ? below * e[i] : above * x[i];
  }
}

struct EluOp {
  explicit EluOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* x, C* y, int64_t n) const {
    LinearOrExponential(C(1), C(1), x, y, n);
  }
};
struct EluGradOp {
  explicit EluGradOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* dy, const C* y, C* dx, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) dx[i] = y[i] < C(0) ? (y[i] + C(1)) * dy[i] : dy[i];
  }
};
struct SeluOp {
  explicit SeluOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* x, C* y, int64_t n) const {
    LinearOrExponential(C(kScale), C(kScaleAlpha), x, y, n);
  }
};
struct SeluGradOp {
  explicit SeluGradOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* dy, const C* y, C* dx, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = y[i] < C(0) ? dy[i] * (y[i] + C(kScaleAlpha)) : dy[i] * C(kScale);
    }
  }
};

MILLRACE_KERNEL(Elu, kCpu, ActivationKernel<EluOp, FloatTypes>);
MILLRACE_KERNEL(EluGrad, kCpu, ActivationGradKernel<EluGradOp, FloatTypes>);
MILLRACE_KERNEL(Selu, kCpu, ActivationKernel<SeluOp, FloatTypes>);
MILLRACE_KERNEL(SeluGrad, kCpu, ActivationGradKernel<SeluGradOp, FloatTypes>);

}  // namespace
}  // namespace millrace
