// FloorDiv, FloorMod, Mod, TruncateMod.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/math/integer_division.h"

namespace millrace {
namespace {

struct FloorDivFn {
  static constexpr const char* kError = kDivisionByZero;
  template <typename T>
  requires std::is_floating_point_v<T> T operator()(T a, T b) const { return std::floor(a / b); }
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b, bool* bad) const {
    const T quotient = DivideTowardsZero(a, b, bad);
    if constexpr (std::is_signed_v<T>) {
      if (*bad) return 0;
      return RemainderTowardsZero(a, b, bad) != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
    } else {
      return quotient;
    }
  }
};
// For 16-bit floats the quotient is rounded to their type before the floor, as in TensorFlow; next to an integer this
// changes the result.
template <typename T>
bool FloorDiv16Bit(Operands operands, const void* left, const void* right, void* out, int64_t n) {
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  const bool a_stands = operands == Operands::kLeftStands, b_stands = operands == Operands::kRightStands;
  const T a0 = *a, b0 = *b;
  for (int64_t i = 0; i < n; ++i) {
    const T quotient = (a_stands ? a0 : a[i]) / (b_stands ? b0 : b[i]);
    static_cast<T*>(out)[i] = T(std::floor(static_cast<float>(quotient)));
  }
  return true;
}

class FloorDivKernel : public BinaryOf<FloorDivFn, RealTypes> {
 public:
  explicit FloorDivKernel(KernelInit& init) : BinaryOf(init) {
    if (init.input_type(0) == DType::kHalf) loop_ = &FloorDiv16Bit<half>;
    if (init.input_type(0) == DType::kBFloat16) loop_ = &FloorDiv16Bit<bfloat16>;
  }
};

// Calls std::fmod, which is slow, only if |a| >= |b|.
template <typename T>
T Remainder(T a, T b) {
  return std::fabs(a) < std::fabs(b) ? a : std::fmod(a, b);
}

// Has the sign of b.
struct FloorModFn {
  static constexpr const char* kError = kDivisionByZero;
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  requires std::is_floating_point_v<T> T operator()(T a, T b) const {
    const T r = Remainder(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b, bool* bad) const {
    const T r = RemainderTowardsZero(a, b, bad);
    if constexpr (std::is_signed_v<T>) {
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    } else {
      return r;
    }
  }
};
// Has the sign of a.
struct TruncateModFn {
  static constexpr const char* kError = kDivisionByZero;
  static constexpr int64_t kGrain = kCostlyGrain;
  template <typename T>
  requires std::is_floating_point_v<T> T operator()(T a, T b) const { return Remainder(a, b); }
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b, bool* bad) const { return RemainderTowardsZero(a, b, bad); }
};

Status FloorModGradient(GradientContext& c) {
  const Endpoint quotient = c.Op("FloorDiv", {c.input(0), c.input(1)});
  c.SetBroadcastGrads(0, c.grad(), 1, c.Mul(c.grad(), c.Neg(quotient)));
  return c.status();
}

Status TruncateModGradient(GradientContext& c) {
  const Endpoint quotient = c.Op("TruncateDiv", {c.input(0), c.input(1)});
  c.SetBroadcastGrads(0, c.grad(), 1, c.Mul(c.grad(), c.Neg(quotient)));
  return c.status();
}

using ModTypes = Types<float, double, int32_t, int64_t>;

}  // namespace

// Shapes only need the part above zero.
KnownInts FloorDivInts(IntsContext& c) {
  return CombineInts(c, [](int64_t a, int64_t b) { return a < 0 || b <= 0 ? kUnknownInt : a / b; });
}
KnownInts FloorModInts(IntsContext& c) {
  return CombineInts(c, [](int64_t a, int64_t b) { return a < 0 || b <= 0 ? kUnknownInt : a % b; });
}

MILLRACE_OP(FloorDiv)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr(
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, "
        "int64, complex64, complex128}")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Ints(FloorDivInts)
    .Summary("floor(x / y), broadcast");
MILLRACE_OP(FloorMod)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: realnumbertype")
    .Shape(BroadcastShape)
    .Gradient(FloorModGradient)
    .Trait(OpTrait::kElementwise)
    .Ints(FloorModInts)
    .Summary("x - FloorDiv(x, y) * y, broadcast");
MILLRACE_OP(Mod)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {int32, int64, half, half, bfloat16, float, double}")
    .Shape(BroadcastShape)
    .Gradient(TruncateModGradient)
    .Summary("x - TruncateDiv(x, y) * y, broadcast");
MILLRACE_OP(TruncateMod)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {int32, int64, bfloat16, half, float, double}")
    .Shape(BroadcastShape)
    .Gradient(TruncateModGradient)
    .Summary("x - TruncateDiv(x, y) * y, broadcast");

MILLRACE_KERNEL(FloorDiv, kCpu, FloorDivKernel);
MILLRACE_HOST_KERNEL(FloorDiv, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(FloorMod, kCpu, BinaryOf<FloorModFn, RealTypes>);
MILLRACE_HOST_KERNEL(FloorMod, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Mod, kCpu, BinaryOf<TruncateModFn, ModTypes>);
MILLRACE_HOST_KERNEL(Mod, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(TruncateMod, kCpu, BinaryOf<TruncateModFn, ModTypes>);
MILLRACE_HOST_KERNEL(TruncateMod, kCuda, "T", DType::kInt32);

}  // namespace millrace
