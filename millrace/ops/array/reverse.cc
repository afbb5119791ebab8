// Reverse, ReverseV2 and ReverseSequence.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status ReverseAxes(KernelContext& ctx, absl::Span<const bool> reversed) {
  const Tensor& input = ctx.input(0);
  bool any = false;
  for (int i = 0; i < input.rank(); ++i) any = any || (reversed[i] && input.dim(i) > 1);
  if (!any || input.num_elements() == 0) {
    ctx.SetOutput(0, input);
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, input.shape()));
  const auto strides = RowMajorStrides(input.shape().dims());
  CopyBox box;
  int64_t offset = 0;
  for (int i = 0; i < input.rank(); ++i) {
    box.Add(input.dim(i), reversed[i] ? -strides[i] : strides[i], strides[i]);
    if (reversed[i]) offset += (input.dim(i) - 1) * strides[i];
  }
  return StridedCopy(ctx, std::move(box), input, offset, out, 0);
}

class ReverseKernel : public Kernel {
 public:
  explicit ReverseKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& dims = ctx.input(1);
    if (dims.rank() != 1 || dims.dim(0) != ctx.input(0).rank()) {
      return InvalidArgument(
          "'dims' must be a vector of as many elements as the tensor has "
          "dimensions (",
          ctx.input(0).rank(), "), not of shape ", dims.shape().ToString());
    }
    return ReverseAxes(ctx, dims.flat<bool>());
  }
};

class ReverseV2Kernel : public Kernel {
 public:
  explicit ReverseV2Kernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const int rank = ctx.input(0).rank();
    if (ctx.input(1).rank() > 1) {
      return InvalidArgument("'axis' must be a vector, not of shape ", ctx.input(1).shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const IntList axes, ReadInts(ctx.input(1), "axis"));
    absl::InlinedVector<bool, 8> reversed(rank, false);
    for (size_t i = 0; i < axes.size(); ++i) {
      if (axes[i] < -rank || axes[i] >= rank) {
        return InvalidArgument("'axis'[", i, "] = ", axes[i], " is out of valid range [", -rank, ", ", rank, ").");
      }
      const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
      if (reversed[axis]) return InvalidArgument("axis ", axis, " specified more than once.");
      reversed[axis] = true;
    }
    return ReverseAxes(ctx, reversed);
  }
};

Status ReverseGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op(c.node()->type(), {c.grad(), c.input(1)}));
  return absl::OkStatus();
}

// For each row of the batch, its first seq_lengths elements of the sequence in reverse, the rest as is.
class ReverseSequenceKernel : public Kernel {
 public:
  explicit ReverseSequenceKernel(KernelInit& init) {
    init.Attr("seq_dim", &seq_dim_);
    init.Attr("batch_dim", &batch_dim_);
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (ctx.input(1).rank() != 1) {
      return InvalidArgument("seq_lengths must be 1-dim, not ", ctx.input(1).rank());
    }
    for (const auto& [dim, name] : {std::pair(seq_dim_, "seq_dim"), std::pair(batch_dim_, "batch_dim")}) {
      if (dim < input.rank()) continue;
      return InvalidArgument(name, " must be < input rank (", dim, " vs. ", input.rank(), ")");
    }
    MR_ASSIGN_OR_RETURN(const int seq, ReadAxis(seq_dim_, input.rank(), "seq_dim"));
    MR_ASSIGN_OR_RETURN(const int batch, ReadAxis(batch_dim_, input.rank(), "batch_dim"));
    if (seq == batch) return InvalidArgument("batch_dim == seq_dim == ", seq);
    MR_ASSIGN_OR_RETURN(const IntList lengths, ReadIntVector(ctx.input(1), "seq_lengths"));
    if (static_cast<int64_t>(lengths.size()) != input.dim(batch)) {
      return InvalidArgument("Length of seq_lengths != input.dims(", batch, "), (", lengths.size(), " vs. ",
                             input.dim(batch), ")");
    }
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i] < 0) return InvalidArgument("seq_lengths(", i, ") < 0");
      if (lengths[i] > input.dim(seq)) {
        return InvalidArgument("seq_lengths(", i, ") > input.dims(", seq, ")");
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, input.shape()));
    const auto strides = RowMajorStrides(input.shape().dims());
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t base = static_cast<int64_t>(i) * strides[batch];
      const int64_t n = lengths[i];
      CopyBox head, tail;
      for (int d = 0; d < input.rank(); ++d) {
        if (d == batch) continue;
        head.Add(d == seq ? n : input.dim(d), d == seq ? -strides[d] : strides[d], strides[d]);
        tail.Add(d == seq ? input.dim(d) - n : input.dim(d), strides[d], strides[d]);
      }
      MR_RETURN_IF_ERROR(
          StridedCopy(ctx, std::move(head), input, base + (n > 0 ? (n - 1) * strides[seq] : 0), out, base));
      const int64_t rest = base + n * strides[seq];
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(tail), input, rest, out, rest));
    }
    return absl::OkStatus();
  }

 private:
  int64_t seq_dim_ = 0;
  int64_t batch_dim_ = 0;
};

Status ReverseSequenceShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape lengths, c.WithRank(1, 1));
  PartialShape out = c.input(0);
  if (out.known_rank()) {
    MR_ASSIGN_OR_RETURN(const int64_t batch_dim, c.Attr<int64_t>("batch_dim"));
    MR_ASSIGN_OR_RETURN(const int64_t seq_dim, c.Attr<int64_t>("seq_dim"));
    MR_RETURN_IF_ERROR(ReadAxis(seq_dim, out.rank(), "seq_dim").status());
    MR_ASSIGN_OR_RETURN(const int batch, ReadAxis(batch_dim, out.rank(), "batch_dim"));
    MR_ASSIGN_OR_RETURN(const int64_t n, MergeDims(out.dim(batch), lengths.dim(0)));
    out.set_dim(batch, n);
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

Status ReverseSequenceGradient(GradientContext& c) {
  c.set_input_grad(
      0, c.Op("ReverseSequence", {c.grad(), c.input(1)},
              {{"seq_dim", c.AttrOr<int64_t>("seq_dim", 0)}, {"batch_dim", c.AttrOr<int64_t>("batch_dim", 0)}}));
  return absl::OkStatus();
}

MILLRACE_OP(Reverse)
    .Input("tensor: T")
    .Input("dims: bool")
    .Output("output: T")
    .Attr(
        "T: {uint8, int8, uint16, int16, uint32, int32, uint64, int64, bool, bfloat16, half, "
        "float, double, complex64, complex128, string}")
    .Shape(UnchangedShape)
    .Gradient(ReverseGradient)
    .Summary("Reverses a tensor along dimensions given as bools.");
MILLRACE_KERNEL(Reverse, kCpu, ReverseKernel);

MILLRACE_OP(ReverseV2)
    .Input("tensor: T")
    .Input("axis: Tidx")
    .Output("output: T")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr(
        "T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, bfloat16, half, "
        "float, double, complex64, complex128, string}")
    .Shape(UnchangedShape)
    .Gradient(ReverseGradient)
    .Summary("Reverses a tensor along dimensions.");
MILLRACE_KERNEL(ReverseV2, kCpu, ReverseV2Kernel);
MILLRACE_KERNEL(ReverseV2, kCuda, ReverseV2Kernel);
MILLRACE_HOST_MEMORY(ReverseV2, "GPU", "axis");
MILLRACE_HOST_KERNEL(ReverseV2, kCuda, "T", DType::kInt32);

MILLRACE_OP(ReverseSequence)
    .Input("input: T")
    .Input("seq_lengths: Tlen")
    .Output("output: T")
    .Attr("seq_dim: int")
    .Attr("batch_dim: int = 0")
    .Attr("T: type")
    .Attr("Tlen: {int32, int64} = int64")
    .Shape(ReverseSequenceShape)
    .Gradient(ReverseSequenceGradient)
    .Summary("Reverses the beginning of each sequence.");
MILLRACE_KERNEL(ReverseSequence, kCpu, ReverseSequenceKernel);
MILLRACE_KERNEL(ReverseSequence, kCuda, ReverseSequenceKernel);
MILLRACE_HOST_MEMORY(ReverseSequence, "GPU", "seq_lengths");

}  // namespace
}  // namespace millrace
