#include "millrace/task/local_devices.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/base/affinity.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/device/cuda_devices.h"

namespace millrace {

int ThreadCount(int threads) { return threads > 0 ? threads : AllowedCoreCount(); }

namespace {

struct Source {
  Mutex mu;
  GpuSource make ABSL_GUARDED_BY(mu);
};

Source& TheSource() {
  static auto* const source = new Source;
  return *source;
}

GpuSource CurrentSource() {
  Source& source = TheSource();
  MutexLock lock(&source.mu);
  return source.make;
}

}  // namespace

void SetGpuSource(GpuSource make) {
  Source& source = TheSource();
  MutexLock lock(&source.mu);
  source.make = std::move(make);
}

std::vector<std::shared_ptr<Device>> LocalDevices(const LocalDeviceOptions& options) {
  std::vector<std::shared_ptr<Device>> devices;
  auto pool = std::make_shared<ThreadPool>("intra_op", ThreadCount(options.intra_op_threads) - 1);
  for (int i = 0; i < options.cpu_devices; ++i) {
    devices.push_back(NewCpuDevice({.name = absl::StrCat(options.task, "/device:CPU:", i), .pool = pool}));
  }
  if (const GpuSource make = CurrentSource(); make != nullptr) {
    for (auto& gpu : make(options, pool)) devices.push_back(std::move(gpu));
    return devices;
  }
  StatusOr<std::vector<std::unique_ptr<Device>>> gpus =
      NewCudaDevices({.task = options.task, .count = options.gpu_devices, .host_threads = pool});
  if (!gpus.ok()) {
    MR_LOG(Error, "continuing without GPUs: ", gpus.status().ToString());
    return devices;
  }
  for (auto& gpu : *gpus) devices.push_back(std::move(gpu));
  return devices;
}

}  // namespace millrace
