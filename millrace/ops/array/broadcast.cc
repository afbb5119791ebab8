// BroadcastTo, and the two ops that work on shapes alone: BroadcastArgs and BroadcastGradientArgs.
#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status Incompatible(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  return InvalidArgument("Incompatible shapes: [", absl::StrJoin(a, ","), "] vs. [", absl::StrJoin(b, ","), "]");
}

class BroadcastToKernel : public Kernel {
 public:
  explicit BroadcastToKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const IntList dims, ReadIntVector(ctx.input(1), "shape"));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    const int extra = shape.rank() - input.rank();
    if (extra < 0) {
      return InvalidArgument("Rank of input (", input.rank(), ") must be no greater than rank of output shape (",
                             shape.rank(), ").");
    }
    for (int i = 0; i < input.rank(); ++i) {
      if (input.dim(i) != 1 && input.dim(i) != shape.dim(extra + i)) {
        return InvalidArgument("Incompatible shapes: ", input.shape().ToString(), " vs. ", shape.ToString(),
                               ". Unable to broadcast tensor of shape ", input.shape().ToString(),
                               " to tensor of shape ", shape.ToString());
      }
    }
    if (shape == input.shape()) {
      ctx.SetOutput(0, input);
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const auto from = RowMajorStrides(input.shape().dims());
    const auto to = RowMajorStrides(shape.dims());
    CopyBox box;
    for (int i = 0; i < shape.rank(); ++i) {
      const bool repeats = i < extra || input.dim(i - extra) == 1;
      box.Add(shape.dim(i), repeats ? 0 : from[i - extra], to[i]);
    }
    return StridedCopy(ctx, std::move(box), input, 0, out, 0);
  }
};

Status BroadcastToShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(1));
  const PartialShape& in = c.input(0);
  if (shape.known_rank() && in.known_rank()) {
    if (in.rank() > shape.rank()) {
      return InvalidArgument("a tensor of rank ", in.rank(), " cannot be broadcast to ", shape.ToString());
    }
    for (int i = 0; i < in.rank(); ++i) {
      const int64_t from = in.dim(i), to = shape.dim(shape.rank() - in.rank() + i);
      if (from >= 0 && to >= 0 && from != 1 && from != to) {
        return InvalidArgument("Incompatible shapes: ", in.ToString(), " vs. ", shape.ToString());
      }
    }
  }
  c.set_output(0, shape);
  return absl::OkStatus();
}

Status BroadcastToGradient(GradientContext& c) {
  const DType index = c.input(1).dtype();
  const Endpoint shape = c.Op("Shape", {c.input(0)}, {{"out_type", index}});
  Node* args = c.AddNode("BroadcastGradientArgs", {shape, c.input(1)});
  if (!c.ok()) return c.status();
  const Endpoint sum = c.Op("Sum", {c.grad(), args->output(0)}, {{"keep_dims", true}});
  c.set_input_grad(0, c.Reshape(sum, shape));
  return absl::OkStatus();
}

class BroadcastArgsKernel : public Kernel {
 public:
  explicit BroadcastArgsKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const IntList a, ReadIntVector(ctx.input(0), "s0"));
    MR_ASSIGN_OR_RETURN(const IntList b, ReadIntVector(ctx.input(1), "s1"));
    IntList out(std::max(a.size(), b.size()));
    for (size_t i = 1; i <= out.size(); ++i) {
      const int64_t x = i <= a.size() ? a[a.size() - i] : 1;
      const int64_t y = i <= b.size() ? b[b.size() - i] : 1;
      if (x != y && x != 1 && y != 1) return Incompatible(a, b);
      out[out.size() - i] = x == 1 ? y : x;
    }
    MR_ASSIGN_OR_RETURN(Tensor * result, ctx.AllocateOutput(0, Shape({static_cast<int64_t>(out.size())})));
    return WriteInts(out, result);
  }
};

Status BroadcastArgsShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape a, c.WithRank(0, 1));
  MR_ASSIGN_OR_RETURN(PartialShape b, c.WithRank(1, 1));
  const bool known = a.dim(0) >= 0 && b.dim(0) >= 0;
  c.set_output(0, PartialShape({known ? std::max(a.dim(0), b.dim(0)) : -1}));
  return absl::OkStatus();
}

// The axes, in terms of the result's rank, along which each of two operands was broadcast. An axis of size one in the
// result is listed for both, which sums over one element; equal shapes need no sum at all.
class BroadcastGradientArgsKernel : public Kernel {
 public:
  explicit BroadcastGradientArgsKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const IntList a, ReadIntVector(ctx.input(0), "s0"));
    MR_ASSIGN_OR_RETURN(const IntList b, ReadIntVector(ctx.input(1), "s1"));
    const size_t rank = std::max(a.size(), b.size());
    IntList axes_a, axes_b;
    for (size_t i = 0; i < rank && a != b; ++i) {
      const int64_t x = i + a.size() >= rank ? a[i + a.size() - rank] : 1;
      const int64_t y = i + b.size() >= rank ? b[i + b.size() - rank] : 1;
      if (x != y && x != 1 && y != 1) return Incompatible(a, b);
      if (x == 1) axes_a.push_back(static_cast<int64_t>(i));
      if (y == 1) axes_b.push_back(static_cast<int64_t>(i));
    }
    MR_RETURN_IF_ERROR(Write(ctx, 0, axes_a));
    return Write(ctx, 1, axes_b);
  }

 private:
  static Status Write(KernelContext& ctx, int i, const IntList& axes) {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, Shape({static_cast<int64_t>(axes.size())})));
    return WriteInts(axes, out);
  }
};

Status BroadcastGradientArgsShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  c.set_output(0, PartialShape({-1}));
  c.set_output(1, PartialShape({-1}));
  return absl::OkStatus();
}

MILLRACE_OP(BroadcastTo)
    .Input("input: T")
    .Input("shape: Tidx")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(BroadcastToShape)
    .Gradient(BroadcastToGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("Broadcasts a tensor to a shape.");
MILLRACE_KERNEL(BroadcastTo, kCpu, BroadcastToKernel);
MILLRACE_KERNEL(BroadcastTo, kCuda, BroadcastToKernel);
MILLRACE_HOST_MEMORY(BroadcastTo, "GPU", "shape");
MILLRACE_HOST_KERNEL(BroadcastTo, kCuda, "T", DType::kInt32);

MILLRACE_OP(BroadcastArgs)
    .Input("s0: T")
    .Input("s1: T")
    .Output("r0: T")
    .Attr("T: {int32, int64} = int32")
    .Shape(BroadcastArgsShape)
    .NotDifferentiable()
    .Summary("The shape that two shapes broadcast to.");
MILLRACE_KERNEL(BroadcastArgs, kCpu, BroadcastArgsKernel);
MILLRACE_HOST_KERNEL(BroadcastArgs, kCuda, "T", DType::kInt64);
MILLRACE_HOST_KERNEL(BroadcastArgs, kCuda, "T", DType::kInt32);

MILLRACE_OP(BroadcastGradientArgs)
    .Input("s0: T")
    .Input("s1: T")
    .Output("r0: T")
    .Output("r1: T")
    .Attr("T: {int32, int64} = int32")
    .Shape(BroadcastGradientArgsShape)
    .NotDifferentiable()
    .Summary("The axes to sum over in the gradients of two broadcast operands.");
MILLRACE_KERNEL(BroadcastGradientArgs, kCpu, BroadcastGradientArgsKernel);
MILLRACE_HOST_KERNEL(BroadcastGradientArgs, kCuda, "T", DType::kInt64);
MILLRACE_HOST_KERNEL(BroadcastGradientArgs, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
