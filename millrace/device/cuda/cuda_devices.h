// The GPUs that this process may use. Implemented by cuda/ or, in a build without CUDA, by no_cuda/:
// callers need no #ifdef.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/device/device.h"

namespace millrace {

struct CudaDeviceOptions {
  // Before "/device:GPU:0".
  std::string task = "/job:localhost/replica:0/task:0";
  // How many at most; -1 takes all that CUDA_VISIBLE_DEVICES leaves.
  int count = -1;
};

// None where there is no GPU, no driver, or no CUDA in this build. UNAVAILABLE names a GPU that is there
// but cannot be used. Devices of the same index share streams and memory, in whichever session they are.
StatusOr<std::vector<std::unique_ptr<Device>>> NewCudaDevices(const CudaDeviceOptions& options);

// How many GPUs there are; 0 in a build without CUDA.
int CudaDeviceCount();

}  // namespace millrace
