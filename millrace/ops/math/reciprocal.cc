// Reciprocal and its older name Inv, and the ops of their gradients.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

Status ReciprocalGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op(c.node()->type() + "Grad", {c.output(0), c.grad()}));
  return c.status();
}
Status ReciprocalGradGradient(GradientContext& c) {
  const Endpoint y = c.input(0), dy = c.input(1), g = c.grad();
  const Endpoint factor = c.Mul(c.ScalarLike(-2, y.dtype()), c.Mul(c.Conj(g), dy));
  c.set_input_grad(0, c.Mul(factor, y));
  c.set_input_grad(1, c.Op(c.node()->type(), {y, g}));
  return c.status();
}

}  // namespace

MILLRACE_OP(Reciprocal)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(ReciprocalGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("1 / x");
MILLRACE_OP(Inv)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(ReciprocalGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("1 / x");
MILLRACE_OP(ReciprocalGrad)
    .Input("y: T")
    .Input("dy: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(ReciprocalGradGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("-dy * y * y: the gradient of Reciprocal from its output y");
MILLRACE_OP(InvGrad)
    .Input("y: T")
    .Input("dy: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(ReciprocalGradGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("-dy * y * y: the gradient of Inv from its output y");

MILLRACE_KERNEL(Reciprocal, kCpu, UnaryOf<ReciprocalFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Inv, kCpu, UnaryOf<ReciprocalFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(ReciprocalGrad, kCpu, BinaryOf<ReciprocalGradFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(InvGrad, kCpu, BinaryOf<ReciprocalGradFn, FloatAndComplexTypes>);

}  // namespace millrace
