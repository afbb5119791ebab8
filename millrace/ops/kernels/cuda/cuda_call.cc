#include "millrace/ops/kernels/cuda/cuda_call.h"

#include <algorithm>
#include <vector>

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

}  // namespace millrace
