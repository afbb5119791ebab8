// ScatterNd and the TensorScatter ops on a GPU. An index out of range is left out.
#include "absl/strings/match.h"
#include "millrace/device/device_memory.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/nd_index.h"
#include "millrace/ops/kernels/cuda/gpu_rows.h"

namespace millrace {
namespace {

const char* CombineOf(const std::string& op) {
  if (absl::EndsWith(op, "Update")) return "x";
  if (absl::EndsWith(op, "Sub")) return "SubFn()(a, x)";
  if (absl::EndsWith(op, "Min")) return "LesserOfFn()(a, x)";
  if (absl::EndsWith(op, "Max")) return "GreaterOfFn()(a, x)";
  return "AddFn()(a, x)";
}

class CudaScatterNdKernel : public Kernel {
 public:
  explicit CudaScatterNdKernel(KernelInit& init) : from_zeros_(init.node().is_type("ScatterNd")) {
    init.Fail(IgnoresBadIndices(init.node()).status());
    init.Fail(update_.Init(CombineOf(init.node().type()), /*rounds=*/true, init.output_type(0),
                           init.input_type(from_zeros_ ? 0 : 1), CudaDevice::GpuOf(init.device())->ordinal()));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(from_zeros_ ? 0 : 1), &updates = ctx.input(from_zeros_ ? 1 : 2);
    Shape shape = ctx.input(0).shape();
    if (from_zeros_) {
      MR_ASSIGN_OR_RETURN(const IntList dims, ReadIntVector(ctx.input(2), "shape"));
      MR_ASSIGN_OR_RETURN(shape, Shape::Make(dims));
    }
    MR_ASSIGN_OR_RETURN(const NdIndex nd, NdIndex::Make(indices, shape));
    MR_RETURN_IF_ERROR(nd.CheckUpdates(updates.shape()));
    MR_ASSIGN_OR_RETURN(const RowIndex index, RowIndex::Of(shape.dims().first(nd.depth())));
    CudaCall call(ctx);
    MR_RETURN_IF_ERROR(CheckIndicesIfAsked(call, indices, index, /*is_coordinates=*/true));
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    if (out->num_elements() == 0) return absl::OkStatus();
    MR_RETURN_IF_ERROR(from_zeros_ ? ClearAll(out) : CopyAll(call, ctx.input(0), out));
    return update_.Run(call, index, nd.rows(), nd.slice(), indices, updates, out);
  }

 private:
  static DeviceBuffer* BufferOf(Tensor* out) { return const_cast<DeviceBuffer*>(DeviceBufferOf(*out)); }
  static Status ClearAll(Tensor* out) { return BufferOf(out)->Clear(out->raw_data(), out->TotalBytes()); }
  static Status CopyAll(const CudaCall& call, const Tensor& from, Tensor* out) {
    MR_ASSIGN_OR_RETURN(const void* first, call.Memory(from));
    CopyBox box;
    box.Add(from.num_elements(), 1, 1);
    return BufferOf(out)->CopyBoxFrom(DeviceBufferOf(from), first, out->raw_data(), SizeOf(from.dtype()), box);
  }

  const bool from_zeros_;
  GpuRowUpdate update_;
};

MILLRACE_KERNEL_OF(ScatterNd, kCuda, ({"T", CudaMoved()}), CudaScatterNdKernel);
MILLRACE_KERNEL_OF(ScatterNdNonAliasingAdd, kCuda, ({"T", CudaMoved()}), CudaScatterNdKernel);
MILLRACE_KERNEL_OF(TensorScatterAdd, kCuda, ({"T", CudaMoved()}), CudaScatterNdKernel);
MILLRACE_KERNEL_OF(TensorScatterSub, kCuda, ({"T", With(CudaNumbers(), {DType::kInt32})}), CudaScatterNdKernel);
MILLRACE_KERNEL_OF(TensorScatterUpdate, kCuda, ({"T", CudaMoved()}), CudaScatterNdKernel);
MILLRACE_KERNEL_OF(TensorScatterMax, kCuda, ({"T", With(CudaReals(), {DType::kInt32})}), CudaScatterNdKernel);
MILLRACE_KERNEL_OF(TensorScatterMin, kCuda, ({"T", With(CudaReals(), {DType::kInt32})}), CudaScatterNdKernel);

}  // namespace
}  // namespace millrace
