// Gather, GatherV2 and GatherNd on a GPU. An index out of range gives zeros.
#include "millrace/ops/array/gather_dims.h"
#include "millrace/ops/array/nd_index.h"
#include "millrace/ops/kernels/cuda/gpu_rows.h"

namespace millrace {
namespace {

class CudaGatherKernel : public Kernel {
 public:
  explicit CudaGatherKernel(KernelInit& init) {
    if (init.node().is_type("GatherV2")) init.Attr("batch_dims", &batch_dims_);
    init.Fail(gather_.Init(init.input_type(0), init.input_type(1), CudaDevice::GpuOf(init.device())->ordinal()));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const GatherDims d, DimsOfGather(ctx, batch_dims_));
    CudaCall call(ctx);
    const GatherForm form{.outer = d.outer, .axis = d.axis, .count = d.count, .index = RowIndex::Of(d.axis)};
    MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, ctx.input(1), form.index, /*is_coordinates=*/false));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, d.shape));
    return gather_.Run(call, form, d.inner, ctx.input(0), ctx.input(1), out);
  }

 private:
  int64_t batch_dims_ = 0;
  GpuGather gather_;
};

class CudaGatherNdKernel : public Kernel {
 public:
  explicit CudaGatherNdKernel(KernelInit& init) {
    init.Fail(IgnoresBadIndices(init.node()).status());
    init.Fail(gather_.Init(init.input_type(0), init.input_type(1), CudaDevice::GpuOf(init.device())->ordinal()));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &params = ctx.input(0), &indices = ctx.input(1);
    if (params.rank() < 1) return InvalidArgument("params must be at least a vector");
    MR_ASSIGN_OR_RETURN(const NdIndex nd, NdIndex::Make(indices, params.shape()));
    MR_ASSIGN_OR_RETURN(const Shape shape, nd.SlicesShape());
    MR_ASSIGN_OR_RETURN(const RowIndex index, RowIndex::Of(params.shape().dims().first(nd.depth())));
    CudaCall call(ctx);
    MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, indices, index, /*is_coordinates=*/true));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    const GatherForm form{.outer = 1, .axis = index.rows(), .count = nd.rows(), .index = index};
    return gather_.Run(call, form, nd.slice(), params, indices, out);
  }

 private:
  GpuGather gather_;
};

MILLRACE_KERNEL_OF(Gather, kCuda, ({"Tparams", CudaMoved()}), CudaGatherKernel);
MILLRACE_KERNEL_OF(GatherV2, kCuda, ({"Tparams", With(CudaNumbers(), {DType::kBool})}), CudaGatherKernel);
MILLRACE_KERNEL_OF(GatherNd, kCuda, ({"Tparams", CudaMoved()}), CudaGatherNdKernel);

}  // namespace
}  // namespace millrace
