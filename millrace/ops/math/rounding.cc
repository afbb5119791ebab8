// Ceil, Floor, Round, Rint.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

// Rounds half to even. For integers this returns 0 like TensorFlow's kernel, which its front end never calls.
struct RoundFn {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return 0;
    } else {
      return RintFn()(x);
    }
  }
};

using RoundTypes = JoinTypes<FloatTypes, Types<int32_t, int64_t>>::type;

}  // namespace

MILLRACE_OP(Ceil)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("The smallest integer not less than x");
MILLRACE_OP(Floor)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("The largest integer not greater than x");
MILLRACE_OP(Round)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("The nearest integer, ties to even");
MILLRACE_OP(Rint)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("The nearest integer, ties to even");

MILLRACE_KERNEL(Ceil, kCpu, UnaryOf<CeilFn, FloatTypes>);
MILLRACE_KERNEL(Floor, kCpu, UnaryOf<FloorFn, FloatTypes>);
MILLRACE_KERNEL(Round, kCpu, UnaryOf<RoundFn, RoundTypes>);
MILLRACE_KERNEL(Rint, kCpu, UnaryOf<RoundFn, Types<float, double, half, bfloat16>>);

}  // namespace millrace
