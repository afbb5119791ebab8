// UnravelIndex: converts flat indices to coordinates.
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class UnravelIndexKernel : public Kernel {
 public:
  explicit UnravelIndexKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& indices = ctx.input(0);
    if (indices.rank() > 1) {
      return InvalidArgument("The indices can only be scalar or vector, got \"", indices.shape().ToString(), "\"");
    }
    MR_ASSIGN_OR_RETURN(const IntList numbers, ReadInts(indices, "indices"));
    MR_ASSIGN_OR_RETURN(const IntList dims, ReadIntVector(ctx.input(1), "dims"));
    const int64_t largest =
        indices.dtype() == DType::kInt32 ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int64_t>::max();
    int64_t total = 1;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 0)
        return InvalidArgument("Input dims cannot contain a dim of zero, but dims ", "contains zero at index ", i);
      if (dims[i] < 0) return InvalidArgument("Input dims cannot be negative, but dims[", i, "] is ", dims[i]);
      if (__builtin_mul_overflow(total, dims[i], &total) || total > largest) {
        return InvalidArgument("Input dims product is causing integer overflow: [", absl::StrJoin(dims, ","), "]");
      }
    }
    const int64_t rank = static_cast<int64_t>(dims.size());
    const int64_t n = static_cast<int64_t>(numbers.size());
    IntList out(rank * n);
    for (int64_t i = 0; i < n; ++i) {
      if (numbers[i] < 0 || numbers[i] >= total) {
        return InvalidArgument("index is out of bound as with dims: indices[", i, "] = ", numbers[i], " is not in [0, ",
                               total, ")");
      }
      int64_t rest = numbers[i];
      for (int64_t d = rank - 1; d >= 0; --d) {
        out[d * n + i] = rest % dims[d];
        rest /= dims[d];
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * result, ctx.AllocateOutput(0, indices.rank() == 0 ? Shape({rank}) : Shape({rank, n})));
    return WriteInts(out, result);
  }
};

Status UnravelIndexShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape dims, c.WithRank(1, 1));
  const PartialShape& indices = c.input(0);
  if (!indices.known_rank()) return absl::OkStatus();
  if (indices.rank() > 1) return InvalidArgument("indices must be a scalar or a vector");
  c.set_output(0, indices.rank() == 0 ? PartialShape({dims.dim(0)}) : PartialShape({dims.dim(0), indices.dim(0)}));
  return absl::OkStatus();
}

MILLRACE_OP(UnravelIndex)
    .Input("indices: Tidx")
    .Input("dims: Tidx")
    .Output("output: Tidx")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(UnravelIndexShape)
    .NotDifferentiable()
    .Summary("Converts flat indices to coordinates.");
MILLRACE_KERNEL(UnravelIndex, kCpu, UnravelIndexKernel);

}  // namespace
}  // namespace millrace
