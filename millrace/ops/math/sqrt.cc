// Sqrt, Rsqrt and the ops of their gradients.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

struct RsqrtLoop : RsqrtFn {
  static void Run(const float* x, float* y, int64_t n) { vector::Rsqrt(x, y, n); }
};

Status SqrtGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("SqrtGrad", {c.output(0), c.grad()}));
  return c.status();
}
Status RsqrtGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("RsqrtGrad", {c.output(0), c.grad()}));
  return c.status();
}
Status SqrtGradGradient(GradientContext& c) {
  const Endpoint by_y = c.Div(c.grad(), c.input(0));
  c.set_input_grad(0, c.Mul(c.Neg(c.Conj(by_y)), c.output(0)));
  c.set_input_grad(1, c.Mul(c.ScalarLike(0.5, by_y.dtype()), by_y));
  return c.status();
}
Status RsqrtGradGradient(GradientContext& c) {
  const Endpoint y = c.input(0), dy = c.input(1), g = c.Conj(c.grad());
  const Endpoint factor = c.Mul(c.ScalarLike(-1.5, y.dtype()), c.Mul(g, dy));
  c.set_input_grad(0, c.Mul(factor, c.Op("Square", {y})));
  c.set_input_grad(1, c.Op("RsqrtGrad", {y, c.grad()}));
  return c.status();
}

}  // namespace

MILLRACE_OP(Sqrt)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(SqrtGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The square root of x");
MILLRACE_OP(Rsqrt)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(RsqrtGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("1 / sqrt(x)");
MILLRACE_OP(SqrtGrad)
    .Input("y: T")
    .Input("dy: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(SqrtGradGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("dy * 0.5 / y: the gradient of Sqrt from its output y");
MILLRACE_OP(RsqrtGrad)
    .Input("y: T")
    .Input("dy: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(RsqrtGradGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("dy * -0.5 * y^3: the gradient of Rsqrt from its output y");

MILLRACE_KERNEL(Sqrt, kCpu, UnaryOf<SqrtFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Rsqrt, kCpu, UnaryOf<RsqrtLoop, FloatAndComplexTypes>);
MILLRACE_KERNEL(SqrtGrad, kCpu, BinaryOf<SqrtGradFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(RsqrtGrad, kCpu, BinaryOf<RsqrtGradFn, FloatAndComplexTypes>);

}  // namespace millrace
