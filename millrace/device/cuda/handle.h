// RAII for CUDA handles, and CUDA errors as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

// Owns one handle of any CUDA library.
template <typename T, auto kDestroy>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(T handle) : handle_(handle) {}
  CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, T{})) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaHandle() {
    if (handle_ != T{}) kDestroy(handle_);
  }

  T get() const { return handle_; }
  explicit operator bool() const { return handle_ != T{}; }
  // For the call that creates it.
  T* out() { return &handle_; }

 private:
  T handle_{};
};

using CudaStreamHandle = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using CudaPool = CudaHandle<cudaMemPool_t, cudaMemPoolDestroy>;

// OK, or an error that names the call, the device and CUDA's reason: RESOURCE_EXHAUSTED for out of memory, UNAVAILABLE
// for a missing or lost device, INTERNAL otherwise.
Status CudaStatus(cudaError_t code, absl::string_view call, absl::string_view device);

// MR_RETURN_IF_CUDA_ERROR(gpu.name(), cudaEventRecord(event, stream));
#define MR_RETURN_IF_CUDA_ERROR(device, expr)                         \
  do {                                                                \
    if (const cudaError_t mr_code_ = (expr); mr_code_ != cudaSuccess) \
      return ::millrace::CudaStatus(mr_code_, #expr, device);         \
  } while (false)

}  // namespace millrace
