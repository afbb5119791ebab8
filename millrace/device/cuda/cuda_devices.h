// The GPUs that this process may use. Implemented by cuda/ or, in a build without CUDA, by no_cuda/, so that callers
// need no #ifdef.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/device/device.h"

namespace millrace {

struct CudaDeviceOptions {
  // The prefix of "/device:GPU:0".
  std::string task = "/job:localhost/replica:0/task:0";
  // The maximum number of GPUs; -1 means all that CUDA_VISIBLE_DEVICES allows.
  int count = -1;
};

// Empty if there is no GPU, no driver or no CUDA in this build. UNAVAILABLE, naming the GPU, if one exists but cannot
// be used. Devices of the same index share streams and memory across sessions.
StatusOr<std::vector<std::unique_ptr<Device>>> NewCudaDevices(const CudaDeviceOptions& options);

// The number of GPUs; 0 in a build without CUDA.
int CudaDeviceCount();

}  // namespace millrace
