// Elu and Selu: linear above zero, exponential below.
#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/kernels/vector_math.h"
#include "millrace/ops/nn/activation_kernels.h"

namespace millrace {
namespace {

// The constants with which Selu preserves mean 0 and variance 1.

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

// The function of x and of exp(x) - 1, which is computed where an x is negative.
template <typename Fn, typename C>
void LinearOrExponential(const C* x, C* y, int64_t n) {
  C e[kConvertBlock];
  for (int64_t begin = 0; begin < n; begin += kConvertBlock, x += kConvertBlock, y += kConvertBlock) {
    const int64_t size = std::min(kConvertBlock, n - begin);
    int negative = 0;
    for (int64_t i = 0; i < size; ++i) negative |= x[i] < C(0);
    if (negative != 0) ExpMinusOne(x, e, size);
    for (int64_t i = 0; i < size; ++i) y[i] = Fn::Of(x[i], e[i]);
  }
}

template <typename Fn>
struct LinearOrExponentialOp {
  explicit LinearOrExponentialOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* x, C* y, int64_t n) const {
    LinearOrExponential<Fn>(x, y, n);
  }
};
template <typename Fn>
struct FromOutputOp {
  explicit FromOutputOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* dy, const C* y, C* dx, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) dx[i] = Fn()(dy[i], y[i]);
  }
};

MILLRACE_KERNEL(Elu, kCpu, ActivationKernel<LinearOrExponentialOp<EluFn>, FloatTypes>);
MILLRACE_KERNEL(EluGrad, kCpu, ActivationGradKernel<FromOutputOp<EluGradFn>, FloatTypes>);
MILLRACE_KERNEL(Selu, kCpu, ActivationKernel<LinearOrExponentialOp<SeluFn>, FloatTypes>);
MILLRACE_KERNEL(SeluGrad, kCpu, ActivationGradKernel<FromOutputOp<SeluGradFn>, FloatTypes>);

}  // namespace
}  // namespace millrace
