// Div, RealDiv, TruncateDiv, DivNoNan.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/math/integer_division.h"

namespace millrace {
namespace {

struct DivFn {
  static constexpr const char* kError = kDivisionByZero;
  template <typename T>
  requires(!std::is_integral_v<T>) T operator()(T a, T b) const { return DivideFn()(a, b); }
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b, bool* bad) const { return DivideTowardsZero(a, b, bad); }
};
struct TruncateDivFn {
  static constexpr const char* kError = kDivisionByZero;
  template <typename T>
  requires std::is_floating_point_v<T> T operator()(T a, T b) const { return std::trunc(a / b); }
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b, bool* bad) const { return DivideTowardsZero(a, b, bad); }
};

// With `op` for the quotients: g / y and -x / y / y * g.
Status QuotientGradient(GradientContext& c, const char* op) {
  const Endpoint x = c.Conj(c.input(0)), y = c.Conj(c.input(1)), g = c.grad();
  const Endpoint by_y = c.Op(op, {c.Op(op, {c.Neg(x), y}), y});
  c.SetBroadcastGrads(0, c.Op(op, {g, y}), 1, c.Mul(g, by_y));
  return c.status();
}
Status DivGradient(GradientContext& c) { return QuotientGradient(c, "Div"); }
Status RealDivGradient(GradientContext& c) { return QuotientGradient(c, "RealDiv"); }
Status DivNoNanGradient(GradientContext& c) { return QuotientGradient(c, "DivNoNan"); }

}  // namespace

MILLRACE_OP(Div)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr(
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, "
        "int64, complex64, complex128}")
    .Shape(BroadcastShape)
    .Gradient(DivGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("x / y, broadcast; truncates for integers");
MILLRACE_OP(RealDiv)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr(
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, "
        "int64, complex64, complex128}")
    .Shape(BroadcastShape)
    .Gradient(RealDivGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("x / y, broadcast");
MILLRACE_OP(TruncateDiv)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr(
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, "
        "int64, complex64, complex128}")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("x / y truncated towards zero, broadcast");
MILLRACE_OP(DivNoNan)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {half, float, bfloat16, double, complex64, complex128}")
    .Shape(BroadcastShape)
    .Gradient(DivNoNanGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("x / y, and 0 where y is 0");

MILLRACE_KERNEL(Div, kCpu, BinaryOf<DivFn, NumberTypes>);
MILLRACE_HOST_KERNEL(Div, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(RealDiv, kCpu, BinaryOf<DivFn, FloatAndComplexTypes>);
MILLRACE_KERNEL(TruncateDiv, kCpu, BinaryOf<TruncateDivFn, RealTypes>);
MILLRACE_HOST_KERNEL(TruncateDiv, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(DivNoNan, kCpu, BinaryOf<DivNoNanFn, FloatAndComplexTypes>);

}  // namespace millrace
