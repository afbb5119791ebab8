// DynamicStitch and ParallelDynamicStitch on a GPU. Indices are the host's, which finds the last slice of each row.
#include "millrace/device/device_memory.h"
#include "millrace/ops/array/stitch_shape.h"
#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/cuda/gpu_rows.h"
#include "millrace/ops/kernels/cuda/lines_program.h"

namespace millrace {
namespace {

class CudaDynamicStitchKernel : public Kernel {
 public:
  explicit CudaDynamicStitchKernel(KernelInit& init)
      : element_(static_cast<int>(SizeOf(init.output_type(0)))), ordinal_(CudaDevice::GpuOf(init.device())->ordinal()) {
    init.Fail(Of(element_).status());
  }

  Status Compute(KernelContext& ctx) override {
    const int n = ctx.num_inputs() / 2;
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeOfStitch(ctx, n));
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    if (out->num_elements() == 0) return absl::OkStatus();
    // Rows that no index refers to are zero.
    MR_RETURN_IF_ERROR(const_cast<DeviceBuffer*>(DeviceBufferOf(*out))->Clear(out->raw_data(), out->TotalBytes()));
    MR_ASSIGN_OR_RETURN(const Tensor targets, call.gpu()->CopyIn(Targets(ctx, n, shape.dim(0))));
    MR_ASSIGN_OR_RETURN(const void* all_targets, call.Memory(targets));
    const int64_t row_bytes = shape.Product(1, shape.rank()) * element_;
    void* to = out->raw_data();
    int64_t begin = 0;
    for (int i = 0; i < n; ++i) {
      int64_t rows = ctx.input(i).num_elements();
      const void* where = static_cast<const int64_t*>(all_targets) + begin;
      begin += rows;
      if (rows == 0) continue;
      MR_ASSIGN_OR_RETURN(const void* from, call.Input(n + i));
      const int bytes = WidestElement(row_bytes, {from, to});
      MR_ASSIGN_OR_RETURN(const cudaKernel_t kernel, Of(bytes));
      int64_t width = row_bytes / bytes;
      std::vector<void*> arguments = {&rows, &width, &where, &from, &to};
      MR_RETURN_IF_ERROR(call.LaunchOverRows("DynamicStitch", kernel, rows, width, arguments));
    }
    return absl::OkStatus();
  }

 private:
  // The row of each slice, or -1 if a later one has the same row.
  static Tensor Targets(const KernelContext& ctx, int n, int64_t rows) {
    int64_t slices = 0;
    for (int i = 0; i < n; ++i) slices += ctx.input(i).num_elements();
    Tensor targets(DType::kInt64, Shape({slices}));
    int64_t* const target = targets.data<int64_t>();
    std::vector<bool> taken(static_cast<size_t>(rows));
    int64_t at = slices;
    for (int i = n - 1; i >= 0; --i) {
      const int32_t* const indices = ctx.input(i).data<int32_t>();
      for (int64_t j = ctx.input(i).num_elements() - 1; j >= 0; --j) {
        const bool first = !taken[static_cast<size_t>(indices[j])];
        taken[static_cast<size_t>(indices[j])] = true;
        target[--at] = first ? indices[j] : -1;
      }
    }
    return targets;
  }

  StatusOr<cudaKernel_t> Of(int bytes) const {
    return CompiledKernel(LinesProgram::Put(bytes), LinesProgram::kPut, ordinal_);
  }

  const int element_, ordinal_;
};

MILLRACE_KERNEL_OF(DynamicStitch, kCuda, ({"T", With(CudaNumbers(), {DType::kBool})}), CudaDynamicStitchKernel);
MILLRACE_KERNEL_OF(ParallelDynamicStitch, kCuda, ({"T", CudaMoved()}), CudaDynamicStitchKernel);

}  // namespace
}  // namespace millrace
