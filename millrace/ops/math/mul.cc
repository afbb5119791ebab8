// Mul, MulNoNan, Square, SquaredDifference.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

// 0 if y is 0, even if x is infinite or NaN.

Status MulGradient(GradientContext& c) {
  c.SetBroadcastGrads(0, c.Mul(c.grad(), c.Conj(c.input(1))), 1, c.Mul(c.Conj(c.input(0)), c.grad()));
  return c.status();
}
Status MulNoNanGradient(GradientContext& c) {
  c.SetBroadcastGrads(0, c.Op("MulNoNan", {c.grad(), c.Conj(c.input(1))}), 1,
                      c.Op("MulNoNan", {c.Conj(c.input(0)), c.grad()}));
  return c.status();
}
Status SquareGradient(GradientContext& c) {
  const Endpoint x = c.input(0);
  c.set_input_grad(0, c.Mul(c.grad(), c.Mul(c.ScalarLike(2, x.dtype()), c.Conj(x))));
  return c.status();
}
Status SquaredDifferenceGradient(GradientContext& c) {
  const Endpoint x = c.input(0), y = c.input(1);
  const Endpoint g = c.Mul(c.Mul(c.ScalarLike(2, x.dtype()), c.grad()), c.Sub(x, y));
  c.SetBroadcastGrads(0, g, 1, c.Neg(g));
  return c.status();
}

using SquaredDifferenceTypes = JoinTypes<FloatAndComplexTypes, IndexTypes>::type;

}  // namespace

KnownInts MulInts(IntsContext& c) {
  return CombineInts(c, [](int64_t a, int64_t b) { return __builtin_mul_overflow(a, b, &a) ? kUnknownInt : a; });
}

MILLRACE_OP(Mul)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr(
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, "
        "int64, complex64, complex128}")
    .Commutative()
    .Shape(BroadcastShape)
    .Gradient(MulGradient)
    .Trait(OpTrait::kElementwise)
    .Ints(MulInts)
    .Summary("x * y, broadcast");
MILLRACE_OP(MulNoNan)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(BroadcastShape)
    .Gradient(MulNoNanGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("x * y, and 0 where y is 0 whatever x is");
MILLRACE_OP(Square)
    .Input("x: T")
    .Output("y: T")
    .Attr(
        "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, "
        "uint64, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(SquareGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("x * x");
MILLRACE_OP(SquaredDifference)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double, int32, int64, complex64, complex128}")
    .Commutative()
    .Shape(BroadcastShape)
    .Gradient(SquaredDifferenceGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("(x - y) times its complex conjugate, broadcast");

MILLRACE_KERNEL(Mul, kCpu, BinaryOf<MulFn, NumberTypes>);
MILLRACE_HOST_KERNEL(Mul, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(MulNoNan, kCpu, BinaryOf<MulNoNanFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Square, kCpu, UnaryOf<SquareFn, NumberTypes>);
MILLRACE_HOST_KERNEL(Square, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(SquaredDifference, kCpu, BinaryOf<SquaredDifferenceFn, SquaredDifferenceTypes>);

}  // namespace millrace
