// EuclideanNorm.
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/reduce.h"
#include "millrace/ops/math/reduction.h"

namespace millrace {
namespace {

// The root of the sum of |x|^2. Integers are added up in their own type, as their sum is.
template <typename T>
struct NormReducer {
  using Acc = ComputeType<T>;
  static constexpr bool kKeepsOne = false;
  static Acc Identity() { return Acc(0); }
  static Acc Load(T x) {
    const Acc a = static_cast<Acc>(x);
    if constexpr (kIsComplex<T>) {
      return a * std::conj(a);
    } else {
      return static_cast<Acc>(a * a);
    }
  }
  static Acc Combine(Acc a, Acc b) { return static_cast<Acc>(a + b); }
  static T Finish(Acc a, int64_t) { return static_cast<T>(std::sqrt(a)); }
};

Status EuclideanNormGradient(GradientContext& c) {
  ReducedInput reduced(c);
  const Endpoint norm = reduced.Expand(c.output(0)), grad = reduced.Expand(c.grad());
  c.set_input_grad(0, c.Mul(c.input(0), c.Div(grad, norm)));
  return c.status();
}

}  // namespace

MILLRACE_OP(EuclideanNorm)
    .Input("input: T")
    .Input("reduction_indices: Tidx")
    .Output("output: T")
    .Attr("keep_dims: bool = false")
    .Attr("T: numbertype")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ReductionShape)
    .Gradient(EuclideanNormGradient)
    .Summary("The square root of the sum of squares along the given axes");

MILLRACE_KERNEL(EuclideanNorm, kCpu, ReduceOf<NormReducer, NumberTypes>);

}  // namespace millrace
