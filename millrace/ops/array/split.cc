// Split and SplitV: split a tensor along one dimension.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

StatusOr<int> SplitAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("-input rank(-", rank, ") <= split_dim < input rank (", rank, "), but got ", axis);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// Writes piece i, of sizes[i] along the axis, to output i.
Status CutPieces(KernelContext& ctx, const Tensor& input, int axis, absl::Span<const int64_t> sizes) {
  if (sizes.size() == 1) {
    ctx.SetOutput(0, input);
    return absl::OkStatus();
  }
  const int rank = input.rank();
  const int64_t outer = input.shape().Product(0, axis);
  const int64_t inner = input.shape().Product(axis + 1, rank);
  const int64_t row = inner * input.dim(axis);
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = input.shape();
    shape.set_dim(axis, sizes[i]);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(static_cast<int>(i), shape));
    const int64_t run = inner * sizes[i];
    CopyBox box;
    box.Add(outer, row, run);
    box.Add(run, 1, 1);
    MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), input, at, out, 0));
    at += run;
  }
  return absl::OkStatus();
}

class SplitKernel : public Kernel {
 public:
  explicit SplitKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(1);
    const int n = ctx.num_outputs();
    MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(ctx.input(0), "split_dim"));
    MR_ASSIGN_OR_RETURN(const int axis, SplitAxis(wanted, input.rank()));
    if (input.dim(axis) % n != 0) {
      return InvalidArgument(
          "Number of ways to split should evenly divide the split dimension, but "
          "got split_dim ",
          axis, " (size = ", input.dim(axis), ") and num_split ", n);
    }
    return CutPieces(ctx, input, axis, IntList(n, input.dim(axis) / n));
  }
};

Status SplitShape(ShapeContext& c) {
  const PartialShape& in = c.input(1);
  PartialShape each;
  if (in.known_rank()) {
    each = PartialShape::UnknownOfRank(in.rank());
    if (const Tensor* split_dim = c.constant(0)) {
      MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(*split_dim, "split_dim"));
      MR_ASSIGN_OR_RETURN(const int axis, SplitAxis(wanted, in.rank()));
      each = in;
      if (in.dim(axis) >= 0) {
        if (in.dim(axis) % c.num_outputs() != 0) {
          return InvalidArgument("dimension ", axis, " of ", in.ToString(), " cannot be split evenly into ",
                                 c.num_outputs());
        }
        each.set_dim(axis, in.dim(axis) / c.num_outputs());
      }
    }
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, each);
  return absl::OkStatus();
}

// Fills in the one size that may be -1 and checks that all add up to `total`.
Status CompleteSizes(int64_t total, IntList& sizes) {
  int unknown = -1;
  int64_t sum = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && unknown < 0) {
      unknown = static_cast<int>(i);
    } else if (sizes[i] < 0) {
      if (sizes[i] == -1) return InvalidArgument("There can only be one -1 in the input.");
      return InvalidArgument("Split size at index ", i, " must be >= 0. Got: ", sizes[i]);
    } else if (__builtin_add_overflow(sum, sizes[i], &sum)) {
      return InvalidArgument("the split sizes overflow");
    }
  }
  if (unknown >= 0 ? sum > total : sum != total) {
    return InvalidArgument(
        "Determined shape must either match input shape along split_dim exactly if "
        "fully specified, or be less than the size of the input along split_dim if "
        "not fully specified.  Got: ",
        sum, " for a dimension of ", total);
  }
  if (unknown >= 0) sizes[unknown] = total - sum;
  return absl::OkStatus();
}

class SplitVKernel : public Kernel {
 public:
  explicit SplitVKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(IntList sizes, ReadIntVector(ctx.input(1), "size_splits"));
    if (static_cast<int>(sizes.size()) != ctx.num_outputs()) {
      return InvalidArgument("size_splits should be a vector of ", ctx.num_outputs(), " elements, got ", sizes.size());
    }
    MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(ctx.input(2), "split_dim"));
    MR_ASSIGN_OR_RETURN(const int axis, SplitAxis(wanted, input.rank()));
    MR_RETURN_IF_ERROR(CompleteSizes(input.dim(axis), sizes));
    return CutPieces(ctx, input, axis, sizes);
  }
};

Status SplitVShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  if (!in.known_rank()) return absl::OkStatus();
  const Tensor* split_dim = c.constant(2);
  const Tensor* given = c.constant(1);
  int axis = -1;
  if (split_dim != nullptr) {
    MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(*split_dim, "split_dim"));
    MR_ASSIGN_OR_RETURN(axis, SplitAxis(wanted, in.rank()));
  }
  IntList sizes(c.num_outputs(), -1);
  if (given != nullptr && axis >= 0) {
    MR_ASSIGN_OR_RETURN(sizes, ReadIntVector(*given, "size_splits"));
    if (static_cast<int>(sizes.size()) != c.num_outputs()) {
      return InvalidArgument("size_splits has ", sizes.size(), " elements for ", c.num_outputs(), " outputs");
    }
    if (in.dim(axis) >= 0) MR_RETURN_IF_ERROR(CompleteSizes(in.dim(axis), sizes));
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    PartialShape out = axis >= 0 ? in : PartialShape::UnknownOfRank(in.rank());
    if (axis >= 0) out.set_dim(axis, sizes[i] >= 0 ? sizes[i] : -1);
    c.set_output(i, out);
  }
  return absl::OkStatus();
}

// Concatenates the pieces' gradients; `value` and `axis` are input indices.
Status JoinGradients(GradientContext& c, int value, int axis) {
  std::vector<Endpoint> parts;
  for (int i = 0; i < c.num_outputs(); ++i) parts.push_back(c.grad(i));
  if (parts.size() > 1) {
    parts.push_back(c.input(axis));
    c.set_input_grad(value, c.Op("ConcatV2", parts));
  } else {
    c.set_input_grad(value, parts[0]);
  }
  return absl::OkStatus();
}
Status SplitGradient(GradientContext& c) { return JoinGradients(c, 1, 0); }
Status SplitVGradient(GradientContext& c) { return JoinGradients(c, 0, 2); }

MILLRACE_OP(Split)
    .Input("split_dim: int32")
    .Input("value: T")
    .Output("output: num_split * T")
    .Attr("num_split: int >= 1")
    .Attr("T: type")
    .Shape(SplitShape)
    .Gradient(SplitGradient)
    .Summary("Splits a tensor into equal pieces along a dimension.");
MILLRACE_KERNEL(Split, kCpu, SplitKernel);
MILLRACE_KERNEL(Split, kCuda, SplitKernel);
MILLRACE_HOST_MEMORY(Split, "GPU", "split_dim");
MILLRACE_HOST_KERNEL(Split, kCuda, "T", DType::kInt32);

MILLRACE_OP(SplitV)
    .Input("value: T")
    .Input("size_splits: Tlen")
    .Input("split_dim: int32")
    .Output("output: num_split * T")
    .Attr("num_split: int >= 1")
    .Attr("T: type")
    .Attr("Tlen: {int8, int32, int64} = int64")
    .Shape(SplitVShape)
    .Gradient(SplitVGradient)
    .Summary("Splits a tensor into pieces of given sizes along a dimension.");
MILLRACE_KERNEL(SplitV, kCpu, SplitVKernel);
MILLRACE_KERNEL(SplitV, kCuda, SplitVKernel);
MILLRACE_HOST_MEMORY(SplitV, "GPU", "size_splits");
MILLRACE_HOST_MEMORY(SplitV, "GPU", "split_dim");
MILLRACE_HOST_KERNEL(SplitV, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
