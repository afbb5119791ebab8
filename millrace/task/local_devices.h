// The processors of this machine as the devices of one task.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/device/device.h"
#include "millrace/device/gpu_layout.h"
#include "millrace/proto/config.pb.h"

namespace millrace {

struct LocalDeviceOptions {
  // The prefix of the devices' names: "/job:localhost/replica:0/task:0".
  std::string task = {};
  // Number of CPU devices (CPU:0, CPU:1, ...); they share threads and memory. At least 1.
  int cpu_devices = 1;
  // The maximum number of GPUs; -1 means all in CUDA_VISIBLE_DEVICES. A build without CUDA has none.
  int gpu_devices = -1;
  // Which cards these are, and how they are shared.
  GpuOptions gpus = {};
  // Threads within one op, including the caller's; 0 means the number of cores that this process may use.
  int intra_op_threads = 0;
};

// What ConfigProto.gpu_options asks for: visible_device_list, per_process_gpu_memory_fraction, virtual_devices and
// num_virtual_devices_per_gpu; memory grows as it is needed, whatever allow_growth says. INVALID_ARGUMENT names the
// field that is wrong.
StatusOr<GpuOptions> GpuOptionsOf(const pb::GPUOptions& options);

// The CPUs, then the GPUs. INVALID_ARGUMENT if the GPUs cannot be laid out as asked for. If a GPU exists but cannot be
// used, that is logged and no GPU is used.
StatusOr<std::vector<std::shared_ptr<Device>>> LocalDevices(const LocalDeviceOptions& options);

// Makes the GPUs of a task; `pool` has the host's threads, for kernels that run there on behalf of a GPU.
using GpuSource = std::function<StatusOr<std::vector<std::unique_ptr<Device>>>(
    const LocalDeviceOptions& options, const std::shared_ptr<ThreadPool>& pool)>;
// Where the GPUs of later tasks of this process come from, instead of CUDA. For tests.
void SetGpuSource(GpuSource source);

// `threads`, or the number of cores that this process may use if `threads` is 0.
int ThreadCount(int threads);

}  // namespace millrace
