// IsNan, IsInf, IsFinite.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
MILLRACE_OP(IsNan)
    .Input("x: T")
    .Output("y: bool")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Which elements are not a number");
MILLRACE_OP(IsInf)
    .Input("x: T")
    .Output("y: bool")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Which elements are infinite");
MILLRACE_OP(IsFinite)
    .Input("x: T")
    .Output("y: bool")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Which elements are finite numbers");

MILLRACE_KERNEL(IsNan, kCpu, UnaryOf<IsNanFn, FloatTypes, bool>);
MILLRACE_KERNEL(IsInf, kCpu, UnaryOf<IsInfFn, FloatTypes, bool>);
MILLRACE_KERNEL(IsFinite, kCpu, UnaryOf<IsFiniteFn, FloatTypes, bool>);

}  // namespace millrace
