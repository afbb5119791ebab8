// Max, Min.
#include <limits>

#include "millrace/graph/host_memory.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/reduce.h"
#include "millrace/ops/math/reduction.h"

namespace millrace {
namespace {

template <typename T>
T Least() {
  if constexpr (std::is_integral_v<T>) {
    return std::numeric_limits<T>::lowest();
  } else {
    return -std::numeric_limits<T>::infinity();
  }
}
template <typename T>
T Greatest() {
  if constexpr (std::is_integral_v<T>) {
    return std::numeric_limits<T>::max();
  } else {
    return std::numeric_limits<T>::infinity();
  }
}

// NaN propagates. 16-bit floats are compared as floats, which is exact.
template <typename T>
struct MaxReducer {
  using Acc = ComputeType<T>;
  static constexpr bool kKeepsOne = true;
  static Acc Identity() { return Least<Acc>(); }
  static Acc Load(T x) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) { return a > b || a != a ? a : b; }
  static T Finish(Acc a, int64_t) requires(!std::is_same_v<Acc, T>) { return T(a); }
};
template <typename T>
struct MinReducer {
  using Acc = ComputeType<T>;
  static constexpr bool kKeepsOne = true;
  static Acc Identity() { return Greatest<Acc>(); }
  static Acc Load(T x) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) { return a < b || a != a ? a : b; }
  static T Finish(Acc a, int64_t) requires(!std::is_same_v<Acc, T>) { return T(a); }
};

// The gradient is divided evenly among the elements that equal the extreme.
Status ExtremeGradient(GradientContext& c) {
  ReducedInput reduced(c);
  const Endpoint x = c.input(0);
  const Endpoint is_extreme = c.Cast(c.Op("Equal", {reduced.Expand(c.output(0)), x}), x.dtype());
  const Endpoint ties =
      reduced.Expand(c.Op("Sum", {is_extreme, c.input(1)}, {{"keep_dims", c.AttrOr<bool>("keep_dims", false)}}));
  c.set_input_grad(0, c.Mul(c.Div(is_extreme, ties), reduced.Expand(c.grad())));
  return c.status();
}

}  // namespace

MILLRACE_OP(Max)
    .Input("input: T")
    .Input("reduction_indices: Tidx")
    .Output("output: T")
    .Attr("keep_dims: bool = false")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64, qint8, quint8, qint32, qint16, quint16}")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ReductionShape)
    .Gradient(ExtremeGradient)
    .Trait(OpTrait::kRowReduction)
    .Summary("The maximum along the given axes");
MILLRACE_OP(Min)
    .Input("input: T")
    .Input("reduction_indices: Tidx")
    .Output("output: T")
    .Attr("keep_dims: bool = false")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64, qint8, quint8, qint32, qint16, quint16}")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ReductionShape)
    .Gradient(ExtremeGradient)
    .Trait(OpTrait::kRowReduction)
    .Summary("The minimum along the given axes");

MILLRACE_KERNEL(Max, kCpu, ReduceOf<MaxReducer, RealTypes>);
MILLRACE_HOST_MEMORY(Max, "GPU", "reduction_indices");
MILLRACE_HOST_KERNEL(Max, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Min, kCpu, ReduceOf<MinReducer, RealTypes>);
MILLRACE_HOST_MEMORY(Min, "GPU", "reduction_indices");
MILLRACE_HOST_KERNEL(Min, kCuda, "T", DType::kInt32);

}  // namespace millrace
