// ResourceGather, ResourceGatherNd: parts of a variable, without reading the whole of it.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/slice_addresses.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Elements copied in one piece of a parallel gather.
constexpr int64_t kGrain = 32768;

Status CopySlices(KernelContext& ctx, const Tensor& params, const SliceAddresses& where) {
  MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, where.shape));
  const int64_t n = static_cast<int64_t>(where.offsets.size());
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, where.size));
  const bool known = DispatchMove(params.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ctx.ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
      T* to = output->raw<T>() + begin * where.size;
      for (int64_t i = begin; i < end; ++i, to += where.size) {
        const T* const from = params.raw<T>() + where.offsets[i];
        std::copy(from, from + where.size, to);
      }
    });
  });
  return known ? absl::OkStatus()
               : Unimplemented("gathering elements of type ", DTypeName(params.dtype()));
}

class ResourceGatherKernel : public Kernel {
 public:
  explicit ResourceGatherKernel(KernelInit& init) {
    init.Attr("dtype", &dtype_);
    init.Attr("batch_dims", &batch_dims_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Tensor params, VariableValue(ctx, 0, dtype_));
    MR_ASSIGN_OR_RETURN(const SliceAddresses where,
                        RowAddresses(params.shape(), ctx.input(1), batch_dims_));
    return CopySlices(ctx, params, where);
  }

 private:
  DType dtype_ = DType::kInvalid;
  int64_t batch_dims_ = 0;
};

class ResourceGatherNdKernel : public Kernel {
 public:
  explicit ResourceGatherNdKernel(KernelInit& init) { init.Attr("dtype", &dtype_); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Tensor params, VariableValue(ctx, 0, dtype_));
    MR_ASSIGN_OR_RETURN(const SliceAddresses where,
                        NdAddresses(params.shape(), ctx.input(1), BadIndices::kFail));
    return CopySlices(ctx, params, where);
  }

 private:
  DType dtype_ = DType::kInvalid;
};

// The dimensions of `head`, then those of `params` from `from` on.
PartialShape Join(absl::Span<const int64_t> head, const PartialShape& params, int from) {
  PartialShape out(head);
  for (int d = from; d < params.rank(); ++d) out.AddDim(params.dim(d));
  return out;
}

Status GatherShape(ShapeContext& c) {
  const PartialShape params = c.HandleShape(0);
  const PartialShape& indices = c.input(1);
  MR_ASSIGN_OR_RETURN(int64_t batch_dims, c.Attr<int64_t>("batch_dims"));
  if (!params.known_rank() || !indices.known_rank()) return UnknownShape(c);
  if (batch_dims < 0) batch_dims += indices.rank();
  if (batch_dims < 0 || batch_dims >= params.rank() || batch_dims > indices.rank()) {
    return InvalidArgument("batch_dims ", batch_dims, " does not fit params of shape ",
                           params.ToString(), " and indices of shape ", indices.ToString());
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
    return InvalidArgument("indices of ", depth, " coordinates into a variable of shape ",
                           params.ToString());
  }
  c.set_output(0, Join(indices.dims().subspan(0, indices.rank() - 1), params,
                       static_cast<int>(depth)));
  return absl::OkStatus();
}

// Rows of the gradient for the rows that were taken; the others had no part in it.
Status GatherGradient(GradientContext& g) {
  if (g.AttrOr<int64_t>("batch_dims", 0) != 0) {
    return Unimplemented("the gradient of ResourceGather with batch_dims");
  }
  const Endpoint shape = g.Op("VariableShape", {g.input(0)});
  const Endpoint row_shape =
      g.Op("StridedSlice", {shape, g.Ints({1}), g.Ints({0}), g.Ints({1})}, {{"end_mask", 1}});
  const Endpoint count = g.Op("ExpandDims", {g.Op("Size", {g.input(1)}), g.Scalar<int32_t>(0)});
  const Endpoint values_shape = g.Op("ConcatV2", {count, row_shape, g.Scalar<int32_t>(0)}, {{"N", 2}});
  g.set_input_grad(0, Grad::Slices(g.Reshape(g.grad(), values_shape), g.Reshape(g.input(1), count),
                                   shape));
  return absl::OkStatus();
}

Status GatherNdGradient(GradientContext& g) {
  const Endpoint shape = g.Op("VariableShape", {g.input(0)},
                              {{"out_type", g.node()->input_type(1)}});
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
    .Summary("Slices of a variable, by coordinates.");

MILLRACE_KERNEL(ResourceGather, kCpu, ResourceGatherKernel);
MILLRACE_KERNEL(ResourceGatherNd, kCpu, ResourceGatherNdKernel);

}  // namespace
}  // namespace millrace
