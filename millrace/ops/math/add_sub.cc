// Add, AddV2, Sub.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

Status AddGradient(GradientContext& c) {
  c.SetBroadcastGrads(0, c.grad(), 1, c.grad());
  return c.status();
}
Status SubGradient(GradientContext& c) {
  c.SetBroadcastGrads(0, c.grad(), 1, c.Neg(c.grad()));
  return c.status();
}

using AddTypes = JoinTypes<NumberTypes, Types<std::string>>::type;

}  // namespace

KnownInts AddInts(IntsContext& c) {
  return CombineInts(c, [](int64_t a, int64_t b) { return __builtin_add_overflow(a, b, &a) ? kUnknownInt : a; });
}
KnownInts SubInts(IntsContext& c) {
  return CombineInts(c, [](int64_t a, int64_t b) { return __builtin_sub_overflow(a, b, &a) ? kUnknownInt : a; });
}

MILLRACE_OP(Add)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr(
        "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
        "complex128, string}")
    .Shape(BroadcastShape)
    .Gradient(AddGradient)
    .Trait(OpTrait::kElementwise)
    .Ints(AddInts)
    .Summary("x + y, broadcast; strings are joined");
MILLRACE_OP(AddV2)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr(
        "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, "
        "int64, complex64, complex128}")
    .Commutative()
    .Shape(BroadcastShape)
    .Gradient(AddGradient)
    .Trait(OpTrait::kElementwise)
    .Ints(AddInts)
    .Summary("x + y, broadcast");
MILLRACE_OP(Sub)
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .Attr(
        "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, "
        "complex64, complex128, uint32, uint64}")
    .Shape(BroadcastShape)
    .Gradient(SubGradient)
    .Trait(OpTrait::kElementwise)
    .Ints(SubInts)
    .Summary("x - y, broadcast");

MILLRACE_KERNEL(Add, kCpu, BinaryOf<AddFn, AddTypes>);
MILLRACE_HOST_KERNEL(Add, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(AddV2, kCpu, BinaryOf<AddFn, NumberTypes>);
MILLRACE_HOST_KERNEL(AddV2, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Sub, kCpu, BinaryOf<SubFn, NumberTypes>);
MILLRACE_HOST_KERNEL(Sub, kCuda, "T", DType::kInt32);

}  // namespace millrace
