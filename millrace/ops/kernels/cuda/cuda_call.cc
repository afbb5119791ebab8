#include "millrace/ops/kernels/cuda/cuda_call.h"

#include <algorithm>
#include <vector>

#include "millrace/device/memory_holders.h"
#include "millrace/ops/kernels/cuda/compiled_kernels.h"

namespace millrace {

StatusOr<void*> CudaCall::Memory(const Tensor& tensor) const {
  const GpuBuffer* const buffer = GpuBufferOf(tensor);
  if (buffer == nullptr || buffer->ordinal() != gpu_->ordinal()) {
    return Internal("a tensor of ", tensor.dtype(), tensor.shape().ToString(), " is not in the memory of ",
                    gpu_->name());
  }
  MR_RETURN_IF_ERROR(gpu_->Use());
  MR_RETURN_IF_ERROR(buffer->AwaitOnCompute());
  return tensor.raw_data();
}

StatusOr<Tensor*> CudaCall::Output(int i, const Shape& shape) const {
  Tensor* const out = ctx_.mutable_output(i);
  const HolderName holder("node", ctx_.node().name());
  MR_RETURN_IF_ERROR(Tensor::MakeInto(ctx_.output_type(i), shape, gpu_->allocator(), out));
  return out;
}

Status CudaCall::Launch(absl::string_view what, cudaKernel_t kernel, dim3 blocks, dim3 threads,
                        std::vector<void*>& arguments) const {
  return Launched(
      what, cudaLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, threads, arguments.data(), 0, stream()));
}

Status CudaCall::LaunchOverElements(absl::string_view what, cudaKernel_t kernel, int64_t n,
                                    std::vector<void*>& arguments) const {
  constexpr int64_t kThreads = 256, kMostBlocks = 132 * 16;
  const int64_t blocks = std::min((n + kThreads - 1) / kThreads, kMostBlocks);
  return Launch(what, kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), arguments);
}

Status CudaCall::LaunchOverRows(absl::string_view what, cudaKernel_t kernel, int64_t rows, int64_t columns,
                                std::vector<void*>& arguments) const {
  constexpr int64_t kThreads = 256, kMostBlocks = 132 * 16;
  int64_t across = 1;
  while (across < kThreads && across < columns) across *= 2;
  const int64_t down = kThreads / across;
  const int64_t by_rows = std::min((rows + down - 1) / down, kMostBlocks);
  const int64_t by_columns = std::min((columns + across - 1) / across, std::max<int64_t>(1, kMostBlocks / by_rows));
  return Launch(what, kernel, dim3(static_cast<unsigned>(by_rows), static_cast<unsigned>(by_columns)),
                dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)), arguments);
}

cudaKernel_t CompileFor(KernelInit& init, const std::string& text, const char* name) {
  StatusOr<cudaKernel_t> kernel = CompiledKernel(text, name, CudaDevice::GpuOf(init.device())->ordinal());
  if (kernel.ok()) return *kernel;
  init.Fail(kernel.status());
  return nullptr;
}

}  // namespace millrace
