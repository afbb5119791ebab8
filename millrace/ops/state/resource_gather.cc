// ResourceGather and ResourceGatherNd: read slices of a variable without reading all of it.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/slice_addresses.h"
#include "millrace/ops/state/striped_rows.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Copies slices to the output, each under the lock of its row.
Status CopySlices(KernelContext& ctx, const Tensor& params, RowLocks& locks, const SliceAddresses& where) {
  MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, where.shape));
  RowLocks* const only[] = {&locks};
  const bool known = DispatchMove(params.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const data = params.raw<T>();
    T* const out = output->raw<T>();
    ForEachSlice(ctx, RowLayout(params), only, where, [&](const SliceBatch& batch) {
      for (int64_t k = 0; k < batch.n; ++k) {
        PrefetchAhead(batch, k, where, data, out);
        const T* const from = data + where.offsets[batch.slices[k]];
        std::copy(from, from + where.size, out + batch.slices[k] * where.size);
      }
    });
  });
  return known ? absl::OkStatus() : Unimplemented("gathering elements of type ", DTypeName(params.dtype()));
}

// For resource and reference variables.
class ResourceGatherKernel : public Kernel {
 public:
  explicit ResourceGatherKernel(KernelInit& init) : dtype_(init.output_type(0)) {
    if (init.node().FindAttr("batch_dims") != nullptr) init.Attr("batch_dims", &batch_dims_);
  }

  Status Compute(KernelContext& ctx) override {
    return ReadVariableRows(ctx, 0, dtype_, [&](const Tensor& params, RowLocks& locks) -> Status {
      MR_ASSIGN_OR_RETURN(const SliceAddresses where, RowAddresses(params.shape(), ctx.input(1), batch_dims_));
      return CopySlices(ctx, params, locks, where);
    });
  }

 private:
  const DType dtype_;
  int64_t batch_dims_ = 0;
};

class ResourceGatherNdKernel : public Kernel {
 public:
  explicit ResourceGatherNdKernel(KernelInit& init) { init.Attr("dtype", &dtype_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor& indices = ctx.input(1);
    if (indices.rank() > 0 && indices.dim(indices.rank() - 1) == 0) return GatherWhole(ctx);
    return ReadVariableRows(ctx, 0, dtype_, [&](const Tensor& params, RowLocks& locks) -> Status {
      MR_ASSIGN_OR_RETURN(const SliceAddresses where, NdAddresses(params.shape(), indices, BadIndices::kFail));
      return CopySlices(ctx, params, locks, where);
    });
  }

 private:
  // Coordinates of depth 0 select the whole tensor: copies of a snapshot, which needs no locks.
  Status GatherWhole(KernelContext& ctx) const {
    MR_ASSIGN_OR_RETURN(const Tensor params, VariableValue(ctx, 0, dtype_));
    MR_ASSIGN_OR_RETURN(const SliceAddresses where, NdAddresses(params.shape(), ctx.input(1), BadIndices::kFail));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, where.shape));
    DispatchMove(params.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (size_t i = 0; i < where.offsets.size(); ++i) {
        std::copy_n(params.raw<T>(), where.size, output->raw<T>() + i * where.size);
      }
    });
    return absl::OkStatus();
  }

  DType dtype_ = DType::kInvalid;
};

// The dimensions of `head`, then those of `params` from `from` on.
PartialShape Join(absl::Span<const int64_t> head, const PartialShape& params, int from) {
  PartialShape out(head);
  for (int d = from; d < params.rank(); ++d) out.AddDim(params.dim(d));
  return out;
}

Status GatherShape(ShapeContext& c) {
  const PartialShape params = VariableShapeOf(c, 0);
  const PartialShape& indices = c.input(1);
  int64_t batch_dims = c.node().AttrOr<int64_t>("batch_dims", 0);
  if (!params.known_rank() || !indices.known_rank()) return UnknownShape(c);
  if (batch_dims < 0) batch_dims += indices.rank();
  if (batch_dims < 0 || batch_dims >= params.rank() || batch_dims > indices.rank()) {
    return InvalidArgument("batch_dims ", batch_dims, " does not fit params of shape ", params.ToString(),
                           " and indices of shape ", indices.ToString());
  }
  c.set_output(0, Join(indices.dims(), params, static_cast<int>(batch_dims) + 1));
  return absl::OkStatus();
}

Status GatherNdShape(ShapeContext& c) {
  const PartialShape params = c.HandleShape(0);
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRankAtLeast(1, 1));
  if (!params.known_rank() || !indices.known_rank()) return UnknownShape(c);
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth < 0) return UnknownShape(c);
  if (depth > params.rank()) {
    return InvalidArgument("indices of ", depth, " coordinates into a variable of shape ", params.ToString());
  }
  c.set_output(0, Join(indices.dims().subspan(0, indices.rank() - 1), params, static_cast<int>(depth)));
  return absl::OkStatus();
}

// The gradient is IndexedSlices of the gathered rows.
Status GatherGradient(GradientContext& g) {
  if (g.AttrOr<int64_t>("batch_dims", 0) != 0) {
    return Unimplemented("the gradient of ResourceGather with batch_dims");
  }
  const Endpoint shape = g.Op("VariableShape", {g.input(0)});
  const Endpoint row_shape = g.Op("StridedSlice", {shape, g.Ints({1}), g.Ints({0}), g.Ints({1})}, {{"end_mask", 1}});
  const Endpoint count = g.Op("ExpandDims", {g.Op("Size", {g.input(1)}), g.Scalar<int32_t>(0)});
  const Endpoint values_shape = g.Op("ConcatV2", {count, row_shape, g.Scalar<int32_t>(0)}, {{"N", 2}});
  g.set_input_grad(0, Grad::Slices(g.Reshape(g.grad(), values_shape), g.Reshape(g.input(1), count), shape));
  return absl::OkStatus();
}

Status GatherNdGradient(GradientContext& g) {
  const Endpoint shape = g.Op("VariableShape", {g.input(0)}, {{"out_type", g.node()->input_type(1)}});
  g.set_input_grad(0, g.Op("ScatterNd", {g.input(1), g.grad(), shape}));
  return absl::OkStatus();
}

MILLRACE_OP(ResourceGather)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Output("output: dtype")
    .Attr("batch_dims: int = 0")
    .Attr("validate_indices: bool = true")
    .Attr("dtype: type")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(GatherShape)
    .Gradient(GatherGradient)
    .Trait(OpTrait::kReadsVariable)
    .Summary("Rows of a variable.");

MILLRACE_OP(ResourceGatherNd)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Output("output: dtype")
    .Attr("dtype: type")
    .Attr("Tindices: {int32, int64}")
    .Stateful()
    .Shape(GatherNdShape)
    .Gradient(GatherNdGradient)
    .Trait(OpTrait::kReadsVariable)
    .Summary("Slices of a variable, selected by coordinates.");

// Created from a Gather of a TF1 variable by the pass row_reads.
MILLRACE_OP(_GatherVariableRows)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Shape(GatherShape)
    .NotDifferentiable()
    .Summary("Rows of a variable, read when the op runs.");

MILLRACE_KERNEL(ResourceGather, kCpu, ResourceGatherKernel);
MILLRACE_KERNEL(_GatherVariableRows, kCpu, ResourceGatherKernel);
MILLRACE_KERNEL(ResourceGatherNd, kCpu, ResourceGatherNdKernel);

}  // namespace
}  // namespace millrace
