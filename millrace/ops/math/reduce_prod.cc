// Prod.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/host_memory.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/reduce.h"
#include "millrace/ops/math/reduction.h"

namespace millrace {
namespace {

template <typename T>
struct ProdReducer {
  using Acc = ComputeType<T>;
  static constexpr bool kKeepsOne = true;
  static constexpr bool kSignless = true;
  static Acc Identity() { return Acc(1); }
  static Acc Load(T x) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) { return static_cast<Acc>(a * b); }
  static T Finish(Acc a, int64_t) requires(!std::is_same_v<Acc, T>) { return T(a); }
};

// The gradient of an element is the product of all others, computed as an exclusive prefix product times a suffix
// product, which is correct for zeros too. The reduced dimensions are moved to the front and merged for that.
Status ProdGradient(GradientContext& c) {
  ReducedInput reduced(c);
  const Endpoint x = c.input(0), grad = reduced.BroadcastToInput(c.grad());
  Endpoint order;
  if (reduced.axes().has_value()) {
    std::vector<int32_t> front = *reduced.axes();
    for (int32_t d = 0; d < x.shape().rank(); ++d) {
      if (!std::binary_search(reduced.axes()->begin(), reduced.axes()->end(), d)) front.push_back(d);
    }
    order = c.Ints(front);
  } else {
    const Endpoint rank = c.Rank(x);
    const Endpoint flat = c.Reshape(c.Cast(c.input(1), DType::kInt32), c.Ints({-1}));
    const Endpoint axes = c.Op("FloorMod", {c.Add(flat, rank), rank});
    const Endpoint all = c.Op("Range", {c.Scalar<int32_t>(0), rank, c.Scalar<int32_t>(1)});
    order = c.Op("ConcatV2", {axes, c.Op("ListDiff", {all, axes}), c.Scalar<int32_t>(0)});
  }
  const Endpoint moved = c.Op("Transpose", {x, order});
  const Endpoint count = c.Reshape(reduced.Count(DType::kInt32), c.Ints({1}));
  const Endpoint rest = c.Reshape(c.Op("Size", {c.output(0)}), c.Ints({1}));
  const Endpoint flat = c.Reshape(moved, c.Op("ConcatV2", {count, rest, c.Scalar<int32_t>(0)}));
  const Endpoint axis = c.Scalar<int32_t>(0);
  const Endpoint before = c.Op("Cumprod", {flat, axis}, {{"exclusive", true}});
  const Endpoint after = c.Op("Cumprod", {flat, axis}, {{"exclusive", true}, {"reverse", true}});
  const Endpoint others = c.Reshape(c.Mul(c.Conj(before), c.Conj(after)), c.Shape(moved));
  const Endpoint back = c.Op("Transpose", {others, c.Op("InvertPermutation", {order})});
  c.set_input_grad(0, c.Mul(grad, back));
  return c.status();
}

}  // namespace

// Of all elements of a vector.
KnownInts ProdInts(IntsContext& c) {
  if (c.input_shape(0).rank() != 1 || !c.has_int_input(0)) return std::nullopt;
  const KnownInts x = c.Input(0), axes = c.Input(1);
  if (!x || !axes || axes->size() != 1) return std::nullopt;
  int64_t product = 1;
  for (const int64_t v : *x) {
    if (v == kUnknownInt || __builtin_mul_overflow(product, v, &product)) return std::vector<int64_t>{kUnknownInt};
  }
  return std::vector<int64_t>{product};
}

MILLRACE_OP(Prod)
    .Input("input: T")
    .Input("reduction_indices: Tidx")
    .Output("output: T")
    .Attr("keep_dims: bool = false")
    .Attr("T: numbertype")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ReductionShape)
    .Gradient(ProdGradient)
    .Ints(ProdInts)
    .Summary("The product of the elements along the given axes");

MILLRACE_KERNEL(Prod, kCpu, ReduceOf<ProdReducer, NumberTypes>);
MILLRACE_HOST_MEMORY(Prod, "GPU", "reduction_indices");
MILLRACE_HOST_KERNEL(Prod, kCuda, "T", DType::kInt32);

}  // namespace millrace
