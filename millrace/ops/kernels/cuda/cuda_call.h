// Helper of GPU kernels: device memory of inputs and outputs, and the stream.
//
//   Status Compute(KernelContext& ctx) override {
//     CudaCall call(ctx);
//     MR_ASSIGN_OR_RETURN(const void* x, call.Input(0));
//     MR_ASSIGN_OR_RETURN(Tensor * y, call.Output(0, ctx.input(0).shape()));
//     ...
//     return call.LaunchOverElements("Negate", kernel_, n, arguments);
//   }
//
// The context's own allocator allocates host memory, for outputs declared with MILLRACE_HOST_MEMORY.
#pragma once

#include <string>
#include <vector>

#include "millrace/device/cuda/cuda_device.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {

class CudaCall {
 public:
  explicit CudaCall(KernelContext& ctx) : ctx_(ctx), gpu_(CudaDevice::GpuOf(ctx.device())) {}

  Gpu* gpu() const { return gpu_; }
  cudaStream_t stream() const { return gpu_->compute(); }

  // The memory of a tensor, ordered after the copy that fills it. INTERNAL if it is not on this GPU.
  StatusOr<void*> Memory(const Tensor& tensor) const;
  StatusOr<const void*> Input(int i) const { return Memory(ctx_.input(i)); }
  // Allocates output i. RESOURCE_EXHAUSTED names the device.
  StatusOr<Tensor*> Output(int i, const Shape& shape) const;
  // Launches the kernel of a program whose threads go on to further elements until all n are done.
  Status LaunchOverElements(absl::string_view what, cudaKernel_t kernel, int64_t n,
                            std::vector<void*>& arguments) const;
  // Launches a kernel of ForRows and ForColumns (indexed_rows.h): a block's threads are neighbours along the columns
  // first.
  Status LaunchOverRows(absl::string_view what, cudaKernel_t kernel, int64_t rows, int64_t columns,
                        std::vector<void*>& arguments) const;
  // The same with the given blocks.
  Status Launch(absl::string_view what, cudaKernel_t kernel, dim3 blocks, dim3 threads,
                std::vector<void*>& arguments) const;
  // The status of a launch.
  Status Launched(absl::string_view kernel, cudaError_t code) const { return CudaStatus(code, kernel, gpu_->name()); }

 private:
  KernelContext& ctx_;
  Gpu* const gpu_;
};

// The kernel `name` of a program for the node's GPU; fails `init` if it does not compile, which is an error before the
// first step.
cudaKernel_t CompileFor(KernelInit& init, const std::string& text, const char* name);

// The types of kernels: MILLRACE_KERNEL_OF(Add, kCuda, ({"T", CudaNumbers()}), …). int32 is not among the numbers,
// because arithmetic on shapes and indices is the host's (MILLRACE_HOST_KERNEL).
inline std::vector<DType> CudaRealFloats() { return {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble}; }
inline std::vector<DType> CudaFloats() {
  return {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble, DType::kComplex64, DType::kComplex128};
}
inline std::vector<DType> CudaIntegers() {
  return {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16, DType::kUInt32, DType::kInt64, DType::kUInt64};
}
inline std::vector<DType> CudaReals() {
  std::vector<DType> types = CudaRealFloats();
  for (const DType dtype : CudaIntegers()) types.push_back(dtype);
  return types;
}
inline std::vector<DType> With(std::vector<DType> types, std::initializer_list<DType> more) {
  types.insert(types.end(), more);
  return types;
}
inline std::vector<DType> CudaNumbers() {
  std::vector<DType> types = CudaFloats();
  for (const DType dtype : CudaIntegers()) types.push_back(dtype);
  return types;
}
// Of kernels that only move elements.
inline std::vector<DType> CudaMoved() { return With(CudaNumbers(), {DType::kInt32, DType::kBool}); }

}  // namespace millrace
