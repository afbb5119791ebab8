// The processor this program runs on.
#pragma once

#include <memory>
#include <string>

#include "millrace/device/device.h"

namespace millrace {

struct CpuDeviceOptions {
  std::string name = "/job:localhost/replica:0/task:0/device:CPU:0";
  // Threads shared with other devices; when null the device has its own.
  std::shared_ptr<ThreadPool> pool = nullptr;
  // Threads that work on one wide op beside the one that runs it; the caller's thread counts as the
  // first. 0 takes the number of cores.
  int intra_op_threads = 0;
  // Drawn at random when 0.
  uint64_t incarnation = 0;
};

std::unique_ptr<Device> NewCpuDevice(const CpuDeviceOptions& options);

}  // namespace millrace
