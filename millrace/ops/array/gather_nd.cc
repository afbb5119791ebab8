// GatherNd: slices of a tensor selected by coordinates.
#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/nd_index.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Offset -1 gives zeros.
template <typename T>
void GatherSlices(absl::Span<const int64_t> offsets, int64_t n, const T* from, T* to) {
  for (int64_t offset : offsets) {
    if (offset >= 0) {
      std::copy_n(from + offset, n, to);
    } else {
      std::fill_n(to, n, T{});
    }
    to += n;
  }
}

class GatherNdKernel : public Kernel {
 public:
  explicit GatherNdKernel(KernelInit& init) {
    auto ignore = IgnoresBadIndices(init.node());
    if (!ignore.ok()) init.Fail(ignore.status());
    ignore_bad_ = ignore.ok() && *ignore;
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& params = ctx.input(0);
    const Tensor& indices = ctx.input(1);
    if (params.rank() < 1) return InvalidArgument("params must be at least a vector");
    MR_ASSIGN_OR_RETURN(const NdIndex nd, NdIndex::Make(indices, params.shape()));
    MR_ASSIGN_OR_RETURN(const Shape shape, nd.SlicesShape());
    if (nd.rows() > 0 && params.num_elements() == 0 && shape.num_elements() > 0) {
      return InvalidArgument("Requested more than 0 entries, but params is empty.  Params shape: ",
                             params.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    MR_ASSIGN_OR_RETURN(const NdIndex::Offsets offsets, nd.Resolve(ignore_bad_, "param shape"));
    DispatchMove(params.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      GatherSlices<T>(offsets, nd.slice(), params.raw<T>(), out->raw<T>());
    });
    return absl::OkStatus();
  }

 private:
  bool ignore_bad_ = false;
};

Status GatherNdShape(ShapeContext& c) {
  const PartialShape& params = c.input(0);
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRankAtLeast(1, 1));
  if (!params.known_rank() || !indices.known_rank()) return absl::OkStatus();
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth < 0) return absl::OkStatus();
  if (depth > params.rank()) {
    return InvalidArgument("indices.shape[-1] must be <= params.rank, but saw indices shape: ", indices.ToString(),
                           " and params shape: ", params.ToString());
  }
  c.set_output(0, JoinShapes(SubShape(indices, 0, indices.rank() - 1),
                             SubShape(params, static_cast<int>(depth), params.rank())));
  return absl::OkStatus();
}

Status GatherNdGradient(GradientContext& c) {
  const Endpoint indices = c.input(1);
  const PartialShape& shape = indices.shape();
  if (shape.known_rank() && shape.rank() == 2 && shape.dim(1) == 1) {
    const Endpoint flat = c.Op("Squeeze", {indices}, {{"squeeze_dims", std::vector<int64_t>{-1}}});
    c.set_input_grad(0, Grad::Slices(c.grad(), flat, c.Shape(c.input(0))));
    return absl::OkStatus();
  }
  const DType index = indices.dtype() == DType::kInt16 ? DType::kInt32 : indices.dtype();
  const Endpoint whole = c.Op("Shape", {c.input(0)}, {{"out_type", index}});
  c.set_input_grad(0, c.Op("ScatterNd", {c.Cast(indices, index), c.grad(), whole}));
  return absl::OkStatus();
}

MILLRACE_OP(GatherNd)
    .Input("params: Tparams")
    .Input("indices: Tindices")
    .Output("output: Tparams")
    .Attr("Tparams: type")
    .Attr("Tindices: {int16, int32, int64}")
    .Attr("bad_indices_policy: string = ''")
    .Shape(GatherNdShape)
    .Gradient(GatherNdGradient)
    .Summary("Slices of a tensor, selected by coordinates.");
MILLRACE_KERNEL(GatherNd, kCpu, GatherNdKernel);

}  // namespace
}  // namespace millrace
