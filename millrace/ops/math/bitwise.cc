// BitwiseAnd, BitwiseOr, BitwiseXor, Invert, LeftShift, RightShift.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

struct BitwiseAndFn {
  static constexpr bool kSignless = true;
  template <typename T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct BitwiseOrFn {
  static constexpr bool kSignless = true;
  template <typename T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct XorFn {
  static constexpr bool kSignless = true;
  template <typename T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct InvertFn {
  static constexpr bool kSignless = true;
  template <typename T>
  T operator()(T x) const {
    return ~x;
  }
};
// The shift amount is clamped to [0, number of bits - 1].
template <typename T>
int ShiftBy(T b) {
  const T most = static_cast<T>(sizeof(T) * 8 - 1);
  return static_cast<int>(b < T(0) ? T(0) : b > most ? most : b);
}
struct LeftShiftFn {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << ShiftBy(b));
  }
};
struct RightShiftFn {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a >> ShiftBy(b));
  }
};

}  // namespace

MILLRACE_OP(BitwiseAnd)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Commutative()
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("Bitwise x and y, broadcast");
MILLRACE_OP(BitwiseOr)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Commutative()
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("Bitwise x or y, broadcast");
MILLRACE_OP(BitwiseXor)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Commutative()
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("Bitwise x xor y, broadcast");
MILLRACE_OP(Invert)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Bitwise complement of x");
MILLRACE_OP(LeftShift)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("x shifted left by y bits, broadcast");
MILLRACE_OP(RightShift)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("x shifted right by y bits (arithmetic shift), broadcast");

MILLRACE_KERNEL(BitwiseAnd, kCpu, BinaryOf<BitwiseAndFn, IntTypes>);
MILLRACE_KERNEL(BitwiseOr, kCpu, BinaryOf<BitwiseOrFn, IntTypes>);
MILLRACE_KERNEL(BitwiseXor, kCpu, BinaryOf<XorFn, IntTypes>);
MILLRACE_KERNEL(Invert, kCpu, UnaryOf<InvertFn, IntTypes>);
MILLRACE_KERNEL(LeftShift, kCpu, BinaryOf<LeftShiftFn, IntTypes>);
MILLRACE_KERNEL(RightShift, kCpu, BinaryOf<RightShiftFn, IntTypes>);

}  // namespace millrace
