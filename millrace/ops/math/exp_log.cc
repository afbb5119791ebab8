// Exp, Expm1, Log, Log1p.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

struct ExpFn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    return std::exp(x);
  }
  static void Run(const float* x, float* y, int64_t n) { vector::Exp(x, y, n); }
  static void Run(const double* x, double* y, int64_t n) { vector::Exp(x, y, n); }
};
struct Expm1Fn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    if constexpr (kIsComplex<T>) {
      // e^(a+bi) - 1 without the loss of digits near 0.
      const auto a = x.real(), b = x.imag();
      const auto grown = std::expm1(a), s = std::sin(b / 2);
      return T(grown * std::cos(b) - 2 * s * s, (grown + 1) * std::sin(b));
    } else {
      return std::expm1(x);
    }
  }
  static void Run(const float* x, float* y, int64_t n) { vector::Expm1(x, y, n); }
};
struct LogFn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    return std::log(x);
  }
  static void Run(const float* x, float* y, int64_t n) { vector::Log(x, y, n); }
  static void Run(const double* x, double* y, int64_t n) { vector::Log(x, y, n); }
};
struct Log1pFn {
  static constexpr int64_t kGrain = 2 * kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    if constexpr (kIsComplex<T>) {
      const auto a = x.real(), b = x.imag();
      return T(std::log1p(2 * a + a * a + b * b) / 2, std::atan2(b, 1 + a));
    } else {
      return std::log1p(x);
    }
  }
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

MILLRACE_KERNEL(Exp, kCpu, UnaryOf<ExpFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Expm1, kCpu, UnaryOf<Expm1Fn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Log, kCpu, UnaryOf<LogFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Log1p, kCpu, UnaryOf<Log1pFn, FloatAndComplexTypes>);

}  // namespace millrace
