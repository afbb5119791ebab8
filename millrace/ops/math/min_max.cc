// Maximum, Minimum.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

// A NaN in either operand is the result.

// The gradient goes to the operand that was taken, and to x when they were equal.
Status TakenGradient(GradientContext& c, const char* compare) {
  const Endpoint x_taken = c.Op(compare, {c.input(0), c.input(1)});
  const Endpoint g = c.grad(), zero = c.ScalarLike(0, g.dtype());
  c.SetBroadcastGrads(0, c.Op("SelectV2", {x_taken, g, zero}), 1, c.Op("SelectV2", {x_taken, zero, g}));
  return c.status();
}
Status MaximumGradient(GradientContext& c) { return TakenGradient(c, "GreaterEqual"); }
Status MinimumGradient(GradientContext& c) { return TakenGradient(c, "LessEqual"); }

}  // namespace

KnownInts MaximumInts(IntsContext& c) {
  return CombineInts(c, [](int64_t a, int64_t b) { return std::max(a, b); });
}
KnownInts MinimumInts(IntsContext& c) {
  return CombineInts(c, [](int64_t a, int64_t b) { return std::min(a, b); });
}

MILLRACE_OP(Maximum)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: realnumbertype")
    .Shape(BroadcastShape)
    .Gradient(MaximumGradient)
    .Trait(OpTrait::kElementwise)
    .Ints(MaximumInts)
    .Summary("Element-wise maximum of x and y, broadcast");
MILLRACE_OP(Minimum)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr("T: realnumbertype")
    .Shape(BroadcastShape)
    .Gradient(MinimumGradient)
    .Trait(OpTrait::kElementwise)
    .Ints(MinimumInts)
    .Summary("Element-wise minimum of x and y, broadcast");

MILLRACE_KERNEL(Maximum, kCpu, BinaryOf<MaximumFn, RealTypes>);
MILLRACE_HOST_KERNEL(Maximum, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Minimum, kCpu, BinaryOf<MinimumFn, RealTypes>);
MILLRACE_HOST_KERNEL(Minimum, kCuda, "T", DType::kInt32);

}  // namespace millrace
