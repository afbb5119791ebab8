// Pow.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

struct PowFn {
  static constexpr const char* kError = "Integers to negative integer powers are not allowed";
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  requires(!std::is_integral_v<T>) T operator()(T a, T b) const { return PowerFn()(a, b); }
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b, bool* bad) const {
    if (b < 0) {
      *bad = true;
      return 0;
    }
    T result = 1;
    while (b != 0) {
      if (b & 1) result = static_cast<T>(result * a);
      a = static_cast<T>(a * a);
      b = static_cast<T>(b >> 1);
    }
    return result;
  }
};

// g * y * x^(y-1), and g * x^y * log(x) where the logarithm is defined.
Status PowGradient(GradientContext& c) {
  const Endpoint x = c.Conj(c.input(0)), y = c.Conj(c.input(1)), z = c.Conj(c.output(0)), g = c.grad();
  const DType t = x.dtype();
  const Endpoint one = c.ScalarLike(1, t), zero = c.ScalarLike(0, t);
  const Endpoint gx = c.Mul(c.Mul(g, y), c.Op("Pow", {x, c.Sub(y, one)}));
  const Endpoint mask = c.Op(IsComplex(t) ? "NotEqual" : "Greater", {x, zero});
  const Endpoint safe_x = c.Op("SelectV2", {mask, x, one});
  const Endpoint log_x = c.Op("SelectV2", {mask, c.Op("Log", {safe_x}), zero});
  c.SetBroadcastGrads(0, gx, 1, c.Mul(c.Mul(g, z), log_x));
  return c.status();
}

using PowTypes = JoinTypes<FloatAndComplexTypes, SignedIntTypes>::type;

}  // namespace

MILLRACE_OP(Pow)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}")
    .Shape(BroadcastShape)
    .Gradient(PowGradient)
    .Trait(OpTrait::kElementwise)
    .Summary("x to the power of y, broadcast");

MILLRACE_KERNEL(Pow, kCpu, BinaryOf<PowFn, PowTypes>);
MILLRACE_HOST_KERNEL(Pow, kCuda, "T", DType::kInt32);

}  // namespace millrace
