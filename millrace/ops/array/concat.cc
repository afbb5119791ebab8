// Concat, ConcatV2 and ConcatOffset: tensors joined along one dimension.
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "millrace/graph/constant_ints.h"
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

// The position of the axis among the inputs, and that of the first value.
struct ConcatInputs {
  int axis;
  int first;
  int count;
};
ConcatInputs InputsOf(const Node& node) {
  const int n = node.num_inputs() - 1;
  return node.is_type("ConcatV2") ? ConcatInputs{n, 0, n} : ConcatInputs{0, 1, n};
}

class ConcatKernel : public Kernel {
 public:
  explicit ConcatKernel(KernelInit& init) : in_(InputsOf(init.node())) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(ctx.input(in_.axis), "concat_dim"));
    const Tensor& first = ctx.input(in_.first);
    const int rank = first.rank();
    if (wanted < -rank || wanted >= rank) {
      return InvalidArgument("ConcatOp : Expected concatenating dimensions in the range [", -rank, ", ", rank,
                             "), but got ", wanted);
    }
    const int axis = static_cast<int>(wanted < 0 ? wanted + rank : wanted);
    MR_ASSIGN_OR_RETURN(const Shape shape, OutputShape(ctx, axis));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const int64_t outer = shape.Product(0, axis);
    const int64_t row = shape.Product(axis, rank);
    const bool long_runs = row * static_cast<int64_t>(SizeOf(out->dtype())) >= kLongRun * in_.count;
    if (long_runs && out->TotalBytes() <= kSmallBytes && IsPlain(out->dtype()) && ctx.device()->shares_host_memory()) {
      JoinRows(ctx, outer, static_cast<char*>(out->raw_data()));
      return absl::OkStatus();
    }
    int64_t at = 0;
    for (int i = 0; i < in_.count; ++i) {
      const Tensor& value = ctx.input(in_.first + i);
      const int64_t run = value.shape().Product(axis, rank);
      CopyBox box;
      box.Add(outer, run, row);
      box.Add(run, 1, 1);
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), value, 0, out, at));
      at += run;
    }
    return absl::OkStatus();
  }

 private:
  // Below this size a single thread is faster than setting up a parallel copy.
  static constexpr size_t kSmallBytes = 1 << 16;
  // Runs of at least this many bytes are copied with memcpy, shorter ones with a loop.
  static constexpr int64_t kLongRun = 128;

  // Writes the output from its beginning to its end.
  void JoinRows(KernelContext& ctx, int64_t outer, char* to) const {
    struct Run {
      const char* from;
      size_t bytes;
    };
    absl::InlinedVector<Run, 8> runs;
    for (int i = 0; i < in_.count; ++i) {
      const Tensor& value = ctx.input(in_.first + i);
      if (value.num_elements() == 0) continue;
      runs.push_back({static_cast<const char*>(value.raw_data()), value.TotalBytes() / static_cast<size_t>(outer)});
    }
    for (int64_t r = 0; r < outer; ++r) {
      for (Run& run : runs) {
        std::memcpy(to, run.from, run.bytes);
        run.from += run.bytes;
        to += run.bytes;
      }
    }
  }

  StatusOr<Shape> OutputShape(KernelContext& ctx, int axis) const {
    const Shape& first = ctx.input(in_.first).shape();
    int64_t total = 0;
    for (int i = 0; i < in_.count; ++i) {
      const Shape& shape = ctx.input(in_.first + i).shape();
      if (shape.rank() != first.rank()) {
        return InvalidArgument("ConcatOp : Ranks of all input tensors should match: shape[0] = ", first.ToString(),
                               " vs. shape[", i, "] = ", shape.ToString());
      }
      for (int d = 0; d < first.rank(); ++d) {
        if (d != axis && shape.dim(d) != first.dim(d)) {
          return InvalidArgument("ConcatOp : Dimension ", d,
                                 " in both shapes must be equal: shape[0] = ", first.ToString(), " vs. shape[", i,
                                 "] = ", shape.ToString());
        }
      }
      total += shape.dim(axis);
    }
    Shape::Dims dims(first.dims().begin(), first.dims().end());
    dims[axis] = total;
    return Shape::Make(dims);
  }

  const ConcatInputs in_;
};

Status ConcatShape(ShapeContext& c) {
  const ConcatInputs in = InputsOf(c.node());
  int rank = -1;
  for (int i = 0; i < in.count; ++i) {
    const PartialShape& shape = c.input(in.first + i);
    if (!shape.known_rank()) continue;
    if (rank >= 0 && shape.rank() != rank) {
      return InvalidArgument("inputs of ranks ", rank, " and ", shape.rank(), " cannot be joined");
    }
    rank = shape.rank();
  }
  if (rank < 0) return absl::OkStatus();
  const Tensor* axis_value = c.constant(in.axis);
  if (axis_value == nullptr) {
    c.set_output(0, PartialShape::UnknownOfRank(rank));
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(*axis_value, "concat_dim"));
  MR_ASSIGN_OR_RETURN(const int axis, ReadAxis(wanted, rank, "concat_dim"));
  PartialShape out = PartialShape::UnknownOfRank(rank);
  int64_t total = 0;
  for (int i = 0; i < in.count; ++i) {
    PartialShape shape = c.input(in.first + i);
    if (!shape.known_rank()) {
      total = -1;
      continue;
    }
    total = AddDims(total, shape.dim(axis));
    shape.set_dim(axis, -1);
    MR_ASSIGN_OR_RETURN(out, out.MergeWith(shape));
  }
  out.set_dim(axis, total);
  c.set_output(0, out);
  return absl::OkStatus();
}

// Each input's gradient is a slice of the output's gradient.
Status ConcatGradient(GradientContext& c) {
  const ConcatInputs in = InputsOf(*c.node());
  std::vector<Endpoint> values;
  for (int i = 0; i < in.count; ++i) values.push_back(c.input(in.first + i));
  Node* shapes = c.AddNode("ShapeN", values);
  std::vector<Endpoint> offset_inputs = {c.Cast(c.input(in.axis), DType::kInt32)};
  if (!c.ok()) return c.status();
  for (int i = 0; i < in.count; ++i) offset_inputs.push_back(shapes->output(i));
  Node* offsets = c.AddNode("ConcatOffset", offset_inputs);
  if (!c.ok()) return c.status();
  for (int i = 0; i < in.count; ++i) {
    c.set_input_grad(in.first + i, c.Op("Slice", {c.grad(), offsets->output(i), shapes->output(i)}));
  }
  return c.status();
}

class ConcatOffsetKernel : public Kernel {
 public:
  explicit ConcatOffsetKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(ctx.input(0), "concat_dim"));
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      if (ctx.input(i).rank() == 1) continue;
      return InvalidArgument("shape ", i - 1, " should be a vector, but has the shape ",
                             ctx.input(i).shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const IntList first, ReadIntVector(ctx.input(1), "shape"));
    const int rank = static_cast<int>(first.size());
    if (wanted < -rank || wanted >= rank) {
      return InvalidArgument("Concat dim is out of range: ", wanted, " vs. ", rank);
    }
    const int axis = static_cast<int>(wanted < 0 ? wanted + rank : wanted);
    int64_t at = 0;
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      MR_ASSIGN_OR_RETURN(const IntList shape, ReadIntVector(ctx.input(1 + i), "shape"));
      if (static_cast<int>(shape.size()) != rank) {
        return InvalidArgument("input ", i, " should contain ", rank, " elements, but got ", shape.size());
      }
      for (int d = 0; d < rank; ++d) {
        if (d != axis && shape[d] != first[d]) {
          return InvalidArgument("All dimensions except ", axis, " must match. Input ", i, " has shape [",
                                 absl::StrJoin(shape, " "), "] and doesn't match input 0 with shape [",
                                 absl::StrJoin(first, " "), "].");
        }
      }
      IntList offset(first.size(), 0);
      offset[axis] = at;
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, Shape({rank})));
      MR_RETURN_IF_ERROR(WriteInts(offset, out));
      at += shape[axis];
    }
    return absl::OkStatus();
  }
};

Status ConcatOffsetShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) {
    MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(1 + i, 1));
    c.set_output(i, shape);
  }
  return absl::OkStatus();
}

MILLRACE_OP(Concat)
    .Input("concat_dim: int32")
    .Input("values: N * T")
    .Output("output: T")
    .Attr("N: int >= 2")
    .Attr("T: type")
    .Shape(ConcatShape)
    .Gradient(ConcatGradient)
    .Summary("Concatenates tensors along a dimension.");
MILLRACE_KERNEL(Concat, kCpu, ConcatKernel);
MILLRACE_KERNEL(Concat, kCuda, ConcatKernel);
MILLRACE_HOST_MEMORY(Concat, "GPU", "concat_dim");
MILLRACE_HOST_KERNEL(Concat, kCuda, "T", DType::kInt32);

KnownInts ConcatInts(IntsContext& c) {
  const int last = c.node().num_inputs() - 1;
  const std::optional<int64_t> axis = c.InputScalar(last);
  if (axis != 0 && axis != -1) return std::nullopt;
  for (int i = 0; i < last; ++i) {
    if (c.input_shape(i).rank() != 1) return std::nullopt;
  }
  return c.JoinInputs(0, last);
}

MILLRACE_OP(ConcatV2)
    .Input("values: N * T")
    .Input("axis: Tidx")
    .Output("output: T")
    .Attr("N: int >= 2")
    .Attr("T: type")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ConcatShape)
    .Gradient(ConcatGradient)
    .Ints(ConcatInts)
    .Summary("Concatenates tensors along a dimension.");
MILLRACE_KERNEL(ConcatV2, kCpu, ConcatKernel);
MILLRACE_KERNEL(ConcatV2, kCuda, ConcatKernel);
MILLRACE_HOST_MEMORY(ConcatV2, "GPU", "axis");
MILLRACE_HOST_KERNEL(ConcatV2, kCuda, "T", DType::kInt32);

MILLRACE_OP(ConcatOffset)
    .Input("concat_dim: int32")
    .Input("shape: N * shape_type")
    .Output("offset: N * shape_type")
    .Attr("N: int >= 2")
    .Attr("shape_type: {int32, int64} = int32")
    .Shape(ConcatOffsetShape)
    .NotDifferentiable()
    .Summary("The offsets of the inputs of a Concat in its output.");
MILLRACE_KERNEL(ConcatOffset, kCpu, ConcatOffsetKernel);
MILLRACE_HOST_KERNEL(ConcatOffset, kCuda);

}  // namespace
}  // namespace millrace
