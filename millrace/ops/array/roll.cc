// Roll: shifts elements along dimensions, wrapping around.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class RollKernel : public Kernel {
 public:
  explicit RollKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (input.rank() < 1) return InvalidArgument("input must be 1-D or higher");
    for (const auto& [i, name] : {std::pair(1, "shift"), std::pair(2, "axis")}) {
      if (ctx.input(i).rank() <= 1) continue;
      return InvalidArgument(name, " must be a scalar or a 1-D vector. Found: ", ctx.input(i).shape().ToString());
    }
    if (ctx.input(1).shape() != ctx.input(2).shape()) {
      return InvalidArgument("shift and axis must have the same size, got shapes ", ctx.input(1).shape().ToString(),
                             " and ", ctx.input(2).shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const IntList shifts, ReadInts(ctx.input(1), "shift"));
    MR_ASSIGN_OR_RETURN(const IntList axes, ReadInts(ctx.input(2), "axis"));
    IntList shift(input.rank(), 0);
    for (size_t i = 0; i < axes.size(); ++i) {
      MR_ASSIGN_OR_RETURN(const int axis, ReadAxis(axes[i], input.rank(), "axis"));
      const int64_t n = std::max<int64_t>(1, input.dim(axis));
      shift[axis] = ((shift[axis] + shifts[i] % n) % n + n) % n;
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, input.shape()));
    if (input.num_elements() == 0) return absl::OkStatus();
    return CopyBlocks(ctx, input, shift, out);
  }

 private:
  // Each rolled dimension cuts the tensor in two; every combination of the halves is one box. As each such
  // dimension has at least two elements, there are no more boxes than elements.
  static Status CopyBlocks(KernelContext& ctx, const Tensor& input, const IntList& shift, Tensor* out) {
    const auto strides = RowMajorStrides(input.shape().dims());
    IntList rolled;
    for (int d = 0; d < input.rank(); ++d) {
      if (shift[d] != 0) rolled.push_back(d);
    }
    for (uint64_t halves = 0; halves < uint64_t{1} << rolled.size(); ++halves) {
      CopyBox box;
      int64_t from = 0, to = 0;
      size_t r = 0;
      for (int d = 0; d < input.rank(); ++d) {
        int64_t size = input.dim(d);
        if (r < rolled.size() && rolled[r] == d) {
          const bool wraps = (halves >> r++ & 1) != 0;
          const int64_t cut = size - shift[d];
          from += wraps ? cut * strides[d] : 0;
          to += wraps ? 0 : shift[d] * strides[d];
          size = wraps ? shift[d] : cut;
        }
        box.Add(size, strides[d], strides[d]);
      }
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), input, from, out, to));
    }
    return absl::OkStatus();
  }
};

Status RollShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 1));
  c.set_output(0, in);
  return absl::OkStatus();
}

Status RollGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("Roll", {c.grad(), c.Neg(c.input(1)), c.input(2)}));
  return absl::OkStatus();
}

MILLRACE_OP(Roll)
    .Input("input: T")
    .Input("shift: Tshift")
    .Input("axis: Taxis")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tshift: {int32, int64}")
    .Attr("Taxis: {int32, int64}")
    .Shape(RollShape)
    .Gradient(RollGradient)
    .Summary("Shifts elements along dimensions, wrapping around.");
MILLRACE_KERNEL(Roll, kCpu, RollKernel);
MILLRACE_KERNEL(Roll, kCuda, RollKernel);
MILLRACE_HOST_MEMORY(Roll, "GPU", "shift");
MILLRACE_HOST_MEMORY(Roll, "GPU", "axis");

}  // namespace
}  // namespace millrace
