// Sigmoid, Tanh and the ops of their gradients.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

struct SigmoidLoop : SigmoidFn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  static void Run(const float* x, float* y, int64_t n) { vector::Sigmoid(x, y, n); }
  static void Run(const double* x, double* y, int64_t n) { vector::Sigmoid(x, y, n); }
};
struct TanhLoop : TanhFn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  static void Run(const float* x, float* y, int64_t n) { vector::Tanh(x, y, n); }
};

Status SigmoidGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("SigmoidGrad", {c.output(0), c.grad()}));
  return c.status();
}
Status TanhGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("TanhGrad", {c.output(0), c.grad()}));
  return c.status();
}
Status SigmoidGradGradient(GradientContext& c) {
  const Endpoint y = c.Conj(c.input(0)), dy = c.Conj(c.input(1));
  const Endpoint g_dy = c.Mul(c.grad(), dy);
  const Endpoint twice = c.Mul(c.Mul(c.ScalarLike(2, y.dtype()), g_dy), y);
  c.set_input_grad(0, c.Sub(g_dy, twice));
  c.set_input_grad(1, c.Op("SigmoidGrad", {c.input(0), c.grad()}));
  return c.status();
}
Status TanhGradGradient(GradientContext& c) {
  const Endpoint y = c.Conj(c.input(0)), dy = c.Conj(c.input(1));
  c.set_input_grad(0, c.Mul(c.Mul(c.Mul(c.grad(), c.ScalarLike(-2, y.dtype())), dy), y));
  c.set_input_grad(1, c.Op("TanhGrad", {c.input(0), c.grad()}));
  return c.status();
}

}  // namespace

MILLRACE_OP(Sigmoid)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(SigmoidGradient)
    .Trait(OpTrait::kElementwise)
    .Trait(OpTrait::kActivation)
    .Summary("1 / (1 + exp(-x))");
MILLRACE_OP(Tanh)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(TanhGradient)
    .Trait(OpTrait::kElementwise)
    .Trait(OpTrait::kActivation)
    .Summary("The hyperbolic tangent of x");
MILLRACE_OP(SigmoidGrad)
    .Input("y: T")
    .Input("dy: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(SigmoidGradGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("dy * y * (1 - y): the gradient of Sigmoid from its output y");
MILLRACE_OP(TanhGrad)
    .Input("y: T")
    .Input("dy: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(TanhGradGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("dy * (1 - y * y): the gradient of Tanh from its output y");

MILLRACE_KERNEL(Sigmoid, kCpu, UnaryOf<SigmoidLoop, FloatAndComplexTypes>);
MILLRACE_KERNEL(Tanh, kCpu, UnaryOf<TanhLoop, FloatAndComplexTypes>);
MILLRACE_KERNEL(SigmoidGrad, kCpu, BinaryOf<SigmoidGradFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(TanhGrad, kCpu, BinaryOf<TanhGradFn, FloatAndComplexTypes>);

}  // namespace millrace
