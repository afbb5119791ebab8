// Copies boxes of elements within a GPU's memory. nvcc reads it: no other headers of Millrace's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace millrace::cuda {

struct BoxOnDevice {
  static constexpr int kMostDims = 16;
  int rank = 0;
  int64_t num_elements = 1;
  int64_t size[kMostDims];  // outermost first
  int64_t from[kMostDims];  // strides, in elements
  int64_t to[kMostDims];
};

// Elements of `size` bytes: 1, 2, 4, 8 or 16.
cudaError_t LaunchCopyBox(const BoxOnDevice& box, const void* from, void* to, size_t size, cudaStream_t stream);

}  // namespace millrace::cuda
