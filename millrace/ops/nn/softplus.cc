// Softplus and Softsign.
#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/kernels/vector_math.h"
#include "millrace/ops/nn/activation_kernels.h"

namespace millrace {
namespace {

Status SoftplusGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("SoftplusGrad", {c.grad(), c.input(0)}));
  return absl::OkStatus();
}
// SoftplusGrad(dy, x) = dy * sigmoid(x), and sigmoid' = 1 / (2 + e^x + e^-x).
Status SoftplusGradGradient(GradientContext& c) {
  const Endpoint dy = c.input(0), x = c.input(1), g = c.grad();
  c.set_input_grad(0, c.Op("SoftplusGrad", {g, x}));
  const Endpoint sum = c.Add(c.Op("Exp", {x}), c.Op("Exp", {c.Neg(x)}));
  const Endpoint two = c.ScalarLike(2.0, x.dtype());
  c.set_input_grad(1, c.Div(c.Mul(g, dy), c.Add(sum, two)));
  return absl::OkStatus();
}
Status SoftsignGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("SoftsignGrad", {c.grad(), c.input(0)}));
  return absl::OkStatus();
}

MILLRACE_OP(Softplus)
    .Summary("log(exp(x) + 1).")
    .Input("features: T")
    .Output("activations: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(UnchangedShape)
    .Gradient(SoftplusGradient);

MILLRACE_OP(SoftplusGrad)
    .Summary("The gradient of Softplus.")
    .Input("gradients: T")
    .Input("features: T")
    .Output("backprops: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(MergedShape)
    .Gradient(SoftplusGradGradient);

MILLRACE_OP(Softsign)
    .Summary("x / (|x| + 1).")
    .Input("features: T")
    .Output("activations: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(UnchangedShape)
    .Gradient(SoftsignGradient);

MILLRACE_OP(SoftsignGrad)
    .Summary("The gradient of Softsign.")
    .Input("gradients: T")
    .Input("features: T")
    .Output("backprops: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(MergedShape)
    .NotDifferentiable();

void LogOnePlus(const float* x, float* y, int64_t n) { vector::Log1p(x, y, n); }
void LogOnePlus(const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::log1p(x[i]);
}

struct SoftplusOp {
  explicit SoftplusOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* x, C* y, int64_t n) const {
    C e[kConvertBlock], log[kConvertBlock];
    for (int64_t begin = 0; begin < n; begin += kConvertBlock, x += kConvertBlock, y += kConvertBlock) {
      const int64_t size = std::min(kConvertBlock, n - begin);
      vector::Exp(x, e, size);
      LogOnePlus(e, log, size);
      for (int64_t i = 0; i < size; ++i) y[i] = SoftplusFn::Of(x[i], e[i], log[i]);
    }
  }
};
struct SoftplusGradOp {
  explicit SoftplusGradOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* dy, const C* x, C* dx, int64_t n) const {
    C e[kConvertBlock];
    for (int64_t begin = 0; begin < n; begin += kConvertBlock) {
      const int64_t size = std::min(kConvertBlock, n - begin);
      for (int64_t i = 0; i < size; ++i) e[i] = -x[begin + i];
      vector::Exp(e, e, size);
      for (int64_t i = 0; i < size; ++i) dx[begin + i] = SoftplusGradFn::Of(dy[begin + i], e[i]);
    }
  }
};
struct SoftsignOp {
  explicit SoftsignOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* x, C* y, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (std::abs(x[i]) + C(1));
  }
};
struct SoftsignGradOp {
  explicit SoftsignGradOp(KernelInit&) {}
  template <typename C>
  void operator()(const C* dy, const C* x, C* dx, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      const C d = std::abs(x[i]) + C(1);
      dx[i] = dy[i] / (d * d);
    }
  }
};

MILLRACE_KERNEL(Softplus, kCpu, ActivationKernel<SoftplusOp, FloatTypes>);
MILLRACE_KERNEL(SoftplusGrad, kCpu, ActivationGradKernel<SoftplusGradOp, FloatTypes>);
MILLRACE_KERNEL(Softsign, kCpu, ActivationKernel<SoftsignOp, FloatTypes>);
MILLRACE_KERNEL(SoftsignGrad, kCpu, ActivationGradKernel<SoftsignGradOp, FloatTypes>);

}  // namespace
}  // namespace millrace
