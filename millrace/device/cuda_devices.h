// The GPUs that this process may use. NVIDIA's are in libmillrace_cuda.so, which the first of these calls opens if it
// is there: beside libmillrace.so, or where MILLRACE_CUDA_LIBRARY says. Opening it registers the GPU's kernels.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/device/device.h"
#include "millrace/device/gpu_layout.h"

namespace millrace {

struct CudaDeviceOptions {
  // The prefix of "/device:GPU:0".
  std::string task = "/job:localhost/replica:0/task:0";
  // The maximum number of GPUs; -1 means all that CUDA_VISIBLE_DEVICES allows. With 0 the library is not opened.
  int count = -1;
  // Which cards these are, and how they are shared. The first call of a process decides (GpuLayout).
  GpuOptions gpus = {};
  // For kernels that run on the host on behalf of a GPU.
  std::shared_ptr<ThreadPool> host_threads = nullptr;
};

// Empty if there is no library, no driver or no GPU. UNAVAILABLE, naming the GPU, if one exists but cannot be used;
// INVALID_ARGUMENT if the options ask for what the cards do not have.
// Devices of the same index share streams and memory across sessions. Thread-safe.
StatusOr<std::vector<std::unique_ptr<Device>>> NewCudaDevices(const CudaDeviceOptions& options);

// The number of GPUs; 0 without the library. Thread-safe.
int CudaDeviceCount();

// Why CudaDeviceCount() is 0, for messages: "there is no NVIDIA driver"; empty if it is not.
const std::string& WhyNoCudaDevices();

}  // namespace millrace
