// All, Any.
#include "millrace/graph/host_memory.h"
#include "millrace/ops/kernels/reduce.h"
#include "millrace/ops/math/reduction.h"

namespace millrace {
namespace {

template <typename T>
struct AllReducer {
  using Acc = bool;
  static constexpr bool kKeepsOne = true;
  static bool Identity() { return true; }
  static bool Load(bool x) { return x; }
  static bool Combine(bool a, bool b) { return a & b; }
};
template <typename T>
struct AnyReducer {
  using Acc = bool;
  static constexpr bool kKeepsOne = true;
  static bool Identity() { return false; }
  static bool Load(bool x) { return x; }
  static bool Combine(bool a, bool b) { return a | b; }
};

}  // namespace

MILLRACE_OP(All)
    .Input("input: bool")
    .Input("reduction_indices: Tidx")
    .Output("output: bool")
    .Attr("keep_dims: bool = false")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ReductionShape)
    .NotDifferentiable()
    .Summary("Logical and along the given axes");
MILLRACE_OP(Any)
    .Input("input: bool")
    .Input("reduction_indices: Tidx")
    .Output("output: bool")
    .Attr("keep_dims: bool = false")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ReductionShape)
    .NotDifferentiable()
    .Summary("Logical or along the given axes");

MILLRACE_KERNEL(All, kCpu, ReduceOf<AllReducer, Types<bool>>);
MILLRACE_HOST_MEMORY(All, "GPU", "reduction_indices");
MILLRACE_KERNEL(Any, kCpu, ReduceOf<AnyReducer, Types<bool>>);
MILLRACE_HOST_MEMORY(Any, "GPU", "reduction_indices");

}  // namespace millrace
