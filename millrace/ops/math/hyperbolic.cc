// Sinh, Cosh, Asinh, Acosh, Atanh.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

#define MR_HYPERBOLIC_FN(name, function)            \
  struct name {                                     \
    static constexpr int64_t kGrain = kCostlyGrain; \
    template <typename T>                           \
    T operator()(T x) const {                       \
      return std::function(x);                      \
    }                                               \
  }
MR_HYPERBOLIC_FN(PlainSinh, sinh);
MR_HYPERBOLIC_FN(PlainCosh, cosh);
MR_HYPERBOLIC_FN(AsinhFn, asinh);
MR_HYPERBOLIC_FN(PlainAcosh, acosh);
MR_HYPERBOLIC_FN(PlainAtanh, atanh);
#undef MR_HYPERBOLIC_FN

struct SinhFn : PlainSinh {
  static void Run(const float* x, float* y, int64_t n) { vector::Sinh(x, y, n); }
};
struct CoshFn : PlainCosh {
  static void Run(const float* x, float* y, int64_t n) { vector::Cosh(x, y, n); }
};
struct AcoshFn : PlainAcosh {
  static void Run(const float* x, float* y, int64_t n) { vector::Acosh(x, y, n); }
};
struct AtanhFn : PlainAtanh {
  static void Run(const float* x, float* y, int64_t n) { vector::Atanh(x, y, n); }
};

Status SinhGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Cosh", {c.Conj(c.input(0))})));
  return c.status();
}
Status CoshGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Sinh", {c.Conj(c.input(0))})));
  return c.status();
}
Status AsinhGradient(GradientContext& c) {
  c.set_input_grad(0, c.Div(c.grad(), c.Op("Cosh", {c.Conj(c.output(0))})));
  return c.status();
}
Status AcoshGradient(GradientContext& c) {
  c.set_input_grad(0, c.Div(c.grad(), c.Op("Sinh", {c.Conj(c.output(0))})));
  return c.status();
}
Status AtanhGradient(GradientContext& c) {
  const Endpoint x = c.Conj(c.input(0));
  const Endpoint slope = c.Op("Reciprocal", {c.Sub(c.ScalarLike(1, x.dtype()), c.Op("Square", {x}))});
  c.set_input_grad(0, c.Mul(c.grad(), slope));
  return c.status();
}

}  // namespace

MILLRACE_OP(Sinh)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(SinhGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The hyperbolic sine of x");
MILLRACE_OP(Cosh)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(CoshGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The hyperbolic cosine of x");
MILLRACE_OP(Asinh)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(AsinhGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The inverse hyperbolic sine of x");
MILLRACE_OP(Acosh)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(AcoshGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The inverse hyperbolic cosine of x");
MILLRACE_OP(Atanh)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(AtanhGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The inverse hyperbolic tangent of x");

MILLRACE_KERNEL(Sinh, kCpu, UnaryOf<SinhFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Cosh, kCpu, UnaryOf<CoshFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Asinh, kCpu, UnaryOf<AsinhFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Acosh, kCpu, UnaryOf<AcoshFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Atanh, kCpu, UnaryOf<AtanhFn, FloatAndComplexTypes>);

}  // namespace millrace
