// Helper of GPU kernels: device memory of inputs and outputs, and the stream.
//
//   Status Compute(KernelContext& ctx) override {
//     CudaCall call(ctx);
//     MR_ASSIGN_OR_RETURN(const void* x, call.Input(0));
//     MR_ASSIGN_OR_RETURN(Tensor * y, call.Output(0, ctx.input(0).shape()));
//     return call.Launched("Negate", LaunchNegate(x, y->raw_data(), ..., call.stream()));
//   }
//
// The context's own allocator allocates host memory, for outputs declared with MILLRACE_HOST_MEMORY.
#pragma once

#include <optional>
#include <vector>

#include "millrace/device/cuda/cuda_device.h"
#include "millrace/ops/kernels/cuda/elementwise.h"
#include "millrace/runtime/kernel.h"

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
  // The status of a launch.
  Status Launched(absl::string_view kernel, cudaError_t code) const { return CudaStatus(code, kernel, gpu_->name()); }

 private:
  KernelContext& ctx_;
  Gpu* const gpu_;
};

// The types of kernels: MILLRACE_KERNEL_OF(Add, kCuda, ({"T", CudaNumbers()}), …). int32 is not among the numbers,
// because arithmetic on shapes and indices is the host's (MILLRACE_HOST_KERNEL).
inline std::vector<DType> CudaFloats() {
  return {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble, DType::kComplex64, DType::kComplex128};
}
inline std::vector<DType> CudaNumbers() {
  std::vector<DType> types = CudaFloats();
  for (const DType dtype :
       {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16, DType::kUInt32, DType::kInt64, DType::kUInt64})
    types.push_back(dtype);
  return types;
}

// nullopt for types that GPU kernels do not support.
std::optional<cuda::ElementType> CudaElementType(DType dtype);

// INVALID_ARGUMENT for incompatible shapes, UNIMPLEMENTED for too many dimensions.
StatusOr<cuda::BinaryPlan> PlanBinary(const Shape& a, const Shape& b, Shape* result);
// For operands of the same shape.
cuda::BinaryPlan PlanSameShape(int64_t num_elements);

}  // namespace millrace
