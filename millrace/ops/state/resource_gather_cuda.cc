// ResourceGather and ResourceGatherNd on a GPU. An index out of range gives zeros.
#include "millrace/ops/kernels/cuda/gpu_rows.h"
#include "millrace/ops/state/slice_addresses.h"
#include "millrace/ops/state/variable_access.h"

namespace millrace {
namespace {

class CudaResourceGatherKernel : public Kernel {
 public:
  explicit CudaResourceGatherKernel(KernelInit& init)
      : dtype_(init.output_type(0)), by_coordinates_(init.node().is_type("ResourceGatherNd")) {
    if (init.node().FindAttr("batch_dims") != nullptr) init.Attr("batch_dims", &batch_dims_);
    init.Fail(gather_.Init(dtype_, init.input_type(1), CudaDevice::GpuOf(init.device())->ordinal()));
  }

  Status Compute(KernelContext& ctx) override {
    return ReadVariableRows(ctx, 0, dtype_, [&](const Tensor& params, RowLocks&) -> Status {
      const Tensor& indices = ctx.input(1);
      MR_ASSIGN_OR_RETURN(const SliceForm slices, by_coordinates_ ? NdSlices(params.shape(), indices)
                                                                  : RowSlices(params.shape(), indices, batch_dims_));
      MR_ASSIGN_OR_RETURN(const RowIndex index, RowIndex::Of(slices.coordinates));
      CudaCall call(ctx);
      MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, indices, index, by_coordinates_));
      MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, slices.shape));
      if (out->num_elements() == 0) return absl::OkStatus();
      const GatherForm form{.outer = 1, .axis = slices.rows, .count = slices.count / slices.batches, .index = index};
      return gather_.Run(call, form, slices.size, params, indices, out);
    });
  }

 private:
  const DType dtype_;
  const bool by_coordinates_;
  int64_t batch_dims_ = 0;
  GpuGather gather_;
};

MILLRACE_KERNEL_OF(ResourceGather, kCuda, ({"dtype", CudaMoved()}), CudaResourceGatherKernel);
MILLRACE_KERNEL_OF(ResourceGatherNd, kCuda, ({"dtype", CudaMoved()}), CudaResourceGatherKernel);

}  // namespace
}  // namespace millrace
