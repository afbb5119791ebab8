// Exp, Expm1, Log, Log1p.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

struct ExpLoop : ExpFn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  static void Run(const float* x, float* y, int64_t n) { vector::Exp(x, y, n); }
  static void Run(const double* x, double* y, int64_t n) { vector::Exp(x, y, n); }
};
struct Expm1Loop : Expm1Fn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  static void Run(const float* x, float* y, int64_t n) { vector::Expm1(x, y, n); }
};
struct LogLoop : LogFn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  static void Run(const float* x, float* y, int64_t n) { vector::Log(x, y, n); }
  static void Run(const double* x, double* y, int64_t n) { vector::Log(x, y, n); }
};
struct Log1pLoop : Log1pFn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  static void Run(const float* x, float* y, int64_t n) { vector::Log1p(x, y, n); }
};

Status ExpGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), c.Conj(c.output(0))));
  return c.status();
}
Status Expm1Gradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Exp", {c.Conj(c.input(0))})));
  return c.status();
}
Status LogGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Reciprocal", {c.Conj(c.input(0))})));
  return c.status();
}
Status Log1pGradient(GradientContext& c) {
  const Endpoint x = c.Conj(c.input(0));
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Reciprocal", {c.Add(c.ScalarLike(1, x.dtype()), x)})));
  return c.status();
}

}  // namespace

MILLRACE_OP(Exp)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(ExpGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("exp(x)");
MILLRACE_OP(Expm1)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(Expm1Gradient)
    .Trait(OpTrait::kElementwise)
    .Summary("exp(x) - 1, accurate near 0");
MILLRACE_OP(Log)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(LogGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The natural logarithm of x");
MILLRACE_OP(Log1p)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(Log1pGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The natural logarithm of 1 + x, accurate near 0");

MILLRACE_KERNEL(Exp, kCpu, UnaryOf<ExpLoop, FloatAndComplexTypes>);
MILLRACE_KERNEL(Expm1, kCpu, UnaryOf<Expm1Loop, FloatAndComplexTypes>);
MILLRACE_KERNEL(Log, kCpu, UnaryOf<LogLoop, FloatAndComplexTypes>);
MILLRACE_KERNEL(Log1p, kCpu, UnaryOf<Log1pLoop, FloatAndComplexTypes>);

}  // namespace millrace
