// BitwiseAnd, BitwiseOr, BitwiseXor, Invert, LeftShift, RightShift.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

struct AndFn {
  template <typename T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct OrFn {
  template <typename T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct XorFn {
  template <typename T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct InvertFn {
  template <typename T>
  T operator()(T x) const {
    return ~x;
  }
};
// A shift by less than nothing is none, and by more than all bits one by all but one.
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
    .Input("x: T").Input("y: T").Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}").Commutative()
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("The bits that x and y have, broadcast");
MILLRACE_OP(BitwiseOr)
    .Input("x: T").Input("y: T").Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}").Commutative()
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("The bits that x or y has, broadcast");
MILLRACE_OP(BitwiseXor)
    .Input("x: T").Input("y: T").Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}").Commutative()
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("The bits that differ between x and y, broadcast");
MILLRACE_OP(Invert)
    .Input("x: T").Output("y: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("All bits of x turned over");
MILLRACE_OP(LeftShift)
    .Input("x: T").Input("y: T").Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("x shifted left by y bits, broadcast");
MILLRACE_OP(RightShift)
    .Input("x: T").Input("y: T").Output("z: T")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("x shifted right by y bits, the sign filling in, broadcast");

MILLRACE_KERNEL(BitwiseAnd, kCpu, BinaryOf<AndFn, IntTypes>);
MILLRACE_KERNEL(BitwiseOr, kCpu, BinaryOf<OrFn, IntTypes>);
MILLRACE_KERNEL(BitwiseXor, kCpu, BinaryOf<XorFn, IntTypes>);
MILLRACE_KERNEL(Invert, kCpu, UnaryOf<InvertFn, IntTypes>);
MILLRACE_KERNEL(LeftShift, kCpu, BinaryOf<LeftShiftFn, IntTypes>);
MILLRACE_KERNEL(RightShift, kCpu, BinaryOf<RightShiftFn, IntTypes>);

}  // namespace millrace
