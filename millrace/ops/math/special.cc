// Erf, Erfc, Lgamma, Digamma, MillracePolygamma.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/vector_math.h"
#include "millrace/ops/math/special_functions.h"

namespace millrace {
namespace {

struct ErfFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    return std::erf(x);
  }
  static void Run(const float* x, float* y, int64_t n) { vector::Erf(x, y, n); }
};
struct ErfcFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    return std::erfc(x);
  }
  static void Run(const float* x, float* y, int64_t n) { vector::Erfc(x, y, n); }
};
struct LgammaFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    return LogGamma(x);
  }
};
struct DigammaFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    return Digamma(x);
  }
};

struct PolygammaFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T n, T x) const {
    return static_cast<T>(Polygamma(n, x));
  }
};

// 2 / sqrt(pi) * exp(-x^2).
Endpoint ErfSlope(GradientContext& c) {
  const Endpoint x = c.input(0);
  const Endpoint scale = c.ScalarLike(1.1283791670955126, x.dtype());
  return c.Mul(scale, c.Op("Exp", {c.Neg(c.Op("Square", {x}))}));
}
Status ErfGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), ErfSlope(c)));
  return c.status();
}
Status ErfcGradient(GradientContext& c) {
  c.set_input_grad(0, c.Neg(c.Mul(c.grad(), ErfSlope(c))));
  return c.status();
}
Status LgammaGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Digamma", {c.input(0)})));
  return c.status();
}
Status DigammaGradient(GradientContext& c) {
  const Endpoint x = c.input(0);
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("MillracePolygamma", {c.ScalarLike(1, x.dtype()), x})));
  return c.status();
}

// Only x has a gradient: the order is an integer.
Status PolygammaGradient(GradientContext& c) {
  const Endpoint n = c.input(0), x = c.input(1);
  const Endpoint slope = c.Op("MillracePolygamma", {c.Add(n, c.ScalarLike(1, n.dtype())), x});
  c.SetBroadcastGrads(0, c.ZerosLike(slope), 1, c.Mul(c.grad(), slope));
  return c.status();
}

}  // namespace

MILLRACE_OP(Erf)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .Gradient(ErfGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The error function of x");
MILLRACE_OP(Erfc)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .Gradient(ErfcGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The complementary error function of x, 1 - erf(x)");
MILLRACE_OP(Lgamma)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .Gradient(LgammaGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The logarithm of the absolute value of the gamma function");
MILLRACE_OP(Digamma)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .Gradient(DigammaGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The derivative of Lgamma");

MILLRACE_OP(MillracePolygamma)
    .Input("a: T")
    .Input("x: T")
    .Output("z: T")
    .Attr("T: {float, double}")
    .Shape(BroadcastShape)
    .Gradient(PolygammaGradient)
    .Summary("The a-th derivative of Digamma at x, broadcast");

MILLRACE_KERNEL(Erf, kCpu, UnaryOf<ErfFn, FloatTypes>);
MILLRACE_KERNEL(Erfc, kCpu, UnaryOf<ErfcFn, FloatTypes>);
MILLRACE_KERNEL(Lgamma, kCpu, UnaryOf<LgammaFn, FloatTypes>);
MILLRACE_KERNEL(Digamma, kCpu, UnaryOf<DigammaFn, FloatTypes>);
MILLRACE_KERNEL(MillracePolygamma, kCpu, BinaryOf<PolygammaFn, Types<float, double>>);

}  // namespace millrace
