// The host CPU.
#pragma once

#include <memory>
#include <string>

#include "millrace/device/device.h"

namespace millrace {

struct CpuDeviceOptions {
  std::string name = "/job:localhost/replica:0/task:0/device:CPU:0";
  // A pool shared with other devices; if null, the device has its own.
  std::shared_ptr<ThreadPool> pool = nullptr;
  // Threads that work on one op in parallel, including the thread that runs it. 0 (the default) means the number of
  // allowed cores.
  int intra_op_threads = 0;
  // Random if 0.
  uint64_t incarnation = 0;
};

std::unique_ptr<Device> NewCpuDevice(const CpuDeviceOptions& options);

}  // namespace millrace
