// Neg, Abs, Sign.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

Status NegGradient(GradientContext& c) {
  c.set_input_grad(0, c.Neg(c.grad()));
  return c.status();
}
Status AbsGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Sign", {c.input(0)})));
  return c.status();
}
// The gradient is zero almost everywhere.
Status SignGradient(GradientContext& c) {
  c.set_input_grad(0, c.ZerosLike(c.input(0)));
  return c.status();
}

using NegTypes = JoinTypes<SignedTypes, ComplexTypes>::type;

}  // namespace

MILLRACE_OP(Neg)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(NegGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("-x");
MILLRACE_OP(Abs)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, int8, int16, int32, int64}")
    .Shape(UnchangedShape)
    .Gradient(AbsGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The absolute value of x");
MILLRACE_OP(Sign)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(SignGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("-1, 0 or 1; x / |x| for complex numbers");

MILLRACE_KERNEL(Neg, kCpu, UnaryOf<NegFn, NegTypes>);
MILLRACE_HOST_KERNEL(Neg, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Abs, kCpu, UnaryOf<AbsFn, SignedTypes>);
MILLRACE_HOST_KERNEL(Abs, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Sign, kCpu, UnaryOf<SignFn, NegTypes>);
MILLRACE_HOST_KERNEL(Sign, kCuda, "T", DType::kInt32);

}  // namespace millrace
