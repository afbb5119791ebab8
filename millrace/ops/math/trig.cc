// Sin, Cos, Tan, Asin, Acos, Atan, Atan2.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/array_binary.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace {
namespace {

struct SinLoop : SinFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  static void Run(const float* x, float* y, int64_t n) { vector::Sin(x, y, n); }
};
struct CosLoop : CosFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  static void Run(const float* x, float* y, int64_t n) { vector::Cos(x, y, n); }
};
struct TanFn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T x) const {
    return static_cast<T>(std::tan(x));
  }
};
#define MR_INVERSE_FN(name, function, vectorised)                                         \
  struct name {                                                                           \
    static constexpr int64_t kGrain = kCostlyGrain;                                       \
    template <typename T>                                                                 \
    T operator()(T x) const {                                                             \
      return static_cast<T>(std::function(x));                                            \
    }                                                                                     \
    static void Run(const float* x, float* y, int64_t n) { vector::vectorised(x, y, n); } \
  }
MR_INVERSE_FN(AsinFn, asin, Asin);
MR_INVERSE_FN(AcosFn, acos, Acos);
MR_INVERSE_FN(AtanFn, atan, Atan);
#undef MR_INVERSE_FN
struct Atan2Fn {
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  T operator()(T y, T x) const {
    return std::atan2(y, x);
  }
  static void Run(const float* y, const float* x, float* out, int64_t n) { vector::Atan2(y, x, out, n); }
};

Status SinGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Cos", {c.Conj(c.input(0))})));
  return c.status();
}
Status CosGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.Neg(c.grad()), c.Op("Sin", {c.Conj(c.input(0))})));
  return c.status();
}
Status TanGradient(GradientContext& c) {
  const Endpoint secant = c.Op("Reciprocal", {c.Op("Cos", {c.Conj(c.input(0))})});
  c.set_input_grad(0, c.Mul(c.grad(), c.Op("Square", {secant})));
  return c.status();
}
// 1 / sqrt(1 - x^2).
Endpoint ArcSlope(GradientContext& c) {
  const Endpoint x = c.Conj(c.input(0));
  return c.Op("Rsqrt", {c.Sub(c.ScalarLike(1, x.dtype()), c.Op("Square", {x}))});
}
Status AsinGradient(GradientContext& c) {
  c.set_input_grad(0, c.Mul(c.grad(), ArcSlope(c)));
  return c.status();
}
Status AcosGradient(GradientContext& c) {
  c.set_input_grad(0, c.Neg(c.Mul(c.grad(), ArcSlope(c))));
  return c.status();
}
Status AtanGradient(GradientContext& c) {
  const Endpoint x = c.Conj(c.input(0));
  const Endpoint slope = c.Op("Reciprocal", {c.Add(c.ScalarLike(1, x.dtype()), c.Op("Square", {x}))});
  c.set_input_grad(0, c.Mul(c.grad(), slope));
  return c.status();
}
Status Atan2Gradient(GradientContext& c) {
  const Endpoint y = c.input(0), x = c.input(1);
  const Endpoint by_radius = c.Div(c.grad(), c.Add(c.Op("Square", {x}), c.Op("Square", {y})));
  c.SetBroadcastGrads(0, c.Mul(x, by_radius), 1, c.Mul(c.Neg(y), by_radius));
  return c.status();
}

}  // namespace

MILLRACE_OP(Sin)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(SinGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The sine of x");
MILLRACE_OP(Cos)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(CosGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The cosine of x");
MILLRACE_OP(Tan)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(TanGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The tangent of x");
MILLRACE_OP(Asin)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(AsinGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The inverse sine of x");
MILLRACE_OP(Acos)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(AcosGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The inverse cosine of x");
MILLRACE_OP(Atan)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, complex64, complex128}")
    .Shape(UnchangedShape)
    .Gradient(AtanGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The inverse tangent of x");
MILLRACE_OP(Atan2)
    .Input("y: T")
    .Input("x: T")
    .Output("z: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(BroadcastShape)
    .Gradient(Atan2Gradient)
    .Trait(OpTrait::kElementwise)
    .Summary("The angle of the point (x, y), broadcast");

MILLRACE_KERNEL(Sin, kCpu, UnaryOf<SinLoop, FloatAndComplexTypes>);
MILLRACE_KERNEL(Cos, kCpu, UnaryOf<CosLoop, FloatAndComplexTypes>);
MILLRACE_KERNEL(Tan, kCpu, UnaryOf<TanFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Asin, kCpu, UnaryOf<AsinFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Acos, kCpu, UnaryOf<AcosFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Atan, kCpu, UnaryOf<AtanFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(Atan2, kCpu, ArrayBinaryOf<Atan2Fn, FloatTypes>);

}  // namespace millrace
