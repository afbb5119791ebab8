// Sum, Mean.
#include "millrace/graph/host_memory.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/reduce.h"
#include "millrace/ops/math/reduction.h"

namespace millrace {
namespace {

template <typename T>
struct SumReducer {
  using Acc = ComputeType<T>;
  static constexpr bool kKeepsOne = true;
  static constexpr bool kSignless = true;
  static Acc Identity() { return Acc(0); }
  static Acc Load(T x) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) { return static_cast<Acc>(a + b); }
  static T Finish(Acc a, int64_t) requires(!std::is_same_v<Acc, T>) { return T(a); }
};

// Integers are summed in 64 bits, so that the mean of narrow integers does not overflow.
template <typename T>
struct MeanReducer {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  using Acc = std::conditional_t<std::is_integral_v<T>, Wide, ComputeType<T>>;
  static constexpr bool kKeepsOne = true;
  static Acc Identity() { return Acc(0); }
  static Acc Load(T x) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) { return a + b; }
  static T Finish(Acc a, int64_t count) {
    if constexpr (std::is_integral_v<T>) {
      return count == 0 ? T(0) : static_cast<T>(a / static_cast<Acc>(count));
    } else {
      return static_cast<T>(a / static_cast<Acc>(count));
    }
  }
};

Status SumGradient(GradientContext& c) {
  c.set_input_grad(0, ReducedInput(c).BroadcastToInput(c.grad()));
  return c.status();
}
Status MeanGradient(GradientContext& c) {
  ReducedInput reduced(c);
  c.set_input_grad(0, reduced.BroadcastToInput(c.Div(c.grad(), reduced.Count(c.grad().dtype()))));
  return c.status();
}

}  // namespace

MILLRACE_OP(Sum)
    .Input("input: T")
    .Input("reduction_indices: Tidx")
    .Output("output: T")
    .Attr("keep_dims: bool = false")
    .Attr("T: numbertype")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ReductionShape)
    .Gradient(SumGradient)
    .Trait(OpTrait::kRowReduction)
    .Summary("The sum of the elements along the given axes");
MILLRACE_OP(Mean)
    .Input("input: T")
    .Input("reduction_indices: Tidx")
    .Output("output: T")
    .Attr("keep_dims: bool = false")
    .Attr("T: numbertype")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ReductionShape)
    .Gradient(MeanGradient)
    .Trait(OpTrait::kRowReduction)
    .Summary("The mean of the elements along the given axes");

MILLRACE_KERNEL(Sum, kCpu, ReduceOf<SumReducer, NumberTypes>);
MILLRACE_HOST_MEMORY(Sum, "GPU", "reduction_indices");
MILLRACE_HOST_KERNEL(Sum, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Mean, kCpu, ReduceOf<MeanReducer, NumberTypes>);
MILLRACE_HOST_MEMORY(Mean, "GPU", "reduction_indices");

}  // namespace millrace
