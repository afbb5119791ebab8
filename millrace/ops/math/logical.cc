// LogicalAnd, LogicalOr, LogicalNot.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

struct NotLoop : NotFn {
  // On bytes of 0 and 1, which the compiler vectorises.
  static void Run(const bool* x, bool* y, int64_t n) {
    const uint8_t* from = reinterpret_cast<const uint8_t*>(x);
    uint8_t* to = reinterpret_cast<uint8_t*>(y);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] ^ 1;
  }
};

}  // namespace

MILLRACE_OP(LogicalAnd)
    .Input("x: bool")
    .Input("y: bool")
    .Output("z: bool")
    .Commutative()
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x and y are true, broadcast");
MILLRACE_OP(LogicalOr)
    .Input("x: bool")
    .Input("y: bool")
    .Output("z: bool")
    .Commutative()
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x or y is true, broadcast");
MILLRACE_OP(LogicalNot)
    .Input("x: bool")
    .Output("y: bool")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x is false");

MILLRACE_KERNEL(LogicalAnd, kCpu, BinaryOf<LogicalAndFn, Types<bool>>);
MILLRACE_KERNEL(LogicalOr, kCpu, BinaryOf<LogicalOrFn, Types<bool>>);
MILLRACE_KERNEL(LogicalNot, kCpu, UnaryOf<NotLoop, Types<bool>>);

}  // namespace millrace
