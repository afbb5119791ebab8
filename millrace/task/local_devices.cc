#include "millrace/task/local_devices.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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

StatusOr<GpuOptions> GpuOptionsOf(const pb::GPUOptions& options) {
  GpuOptions gpus;
  for (const string_view word : absl::StrSplit(options.visible_device_list(), ',', absl::SkipWhitespace())) {
    int card = 0;
    if (!absl::SimpleAtoi(word, &card))
      return InvalidArgument("gpu_options.visible_device_list is '", options.visible_device_list(), "': '", word,
                             "' is no number of a GPU");
    gpus.cards.push_back(card);
  }
  gpus.memory_fraction = options.per_process_gpu_memory_fraction();
  const pb::GPUOptions::Experimental& more = options.experimental();
  if (more.num_virtual_devices_per_gpu() != 0) gpus.devices_per_card = more.num_virtual_devices_per_gpu();
  for (const auto& card : more.virtual_devices()) {
    const int count = card.memory_limit_mb_size();
    for (const auto& [field, size] :
         {std::pair("priority", card.priority_size()), std::pair("device_ordinal", card.device_ordinal_size())}) {
      if (size != 0 && size != count)
        return InvalidArgument("gpu_options.experimental.virtual_devices has ", count, " memory_limit_mb and ", size,
                               " ", field);
    }
    std::vector<GpuOptions::VirtualGpu>& virtual_gpus = gpus.virtual_gpus.emplace_back();
    for (int i = 0; i < count; ++i) {
      const float megabytes = card.memory_limit_mb(i);
      if (!(megabytes > 0 && megabytes < 1e9f))
        return InvalidArgument("gpu_options.experimental.virtual_devices has the memory_limit_mb ", megabytes,
                               "; give one above 0");
      virtual_gpus.push_back({.memory_limit = static_cast<int64_t>(double{megabytes} * (1 << 20)),
                              .priority = card.priority_size() > 0 ? card.priority(i) : 0,
                              .ordinal = card.device_ordinal_size() > 0 ? card.device_ordinal(i) : 0});
    }
  }
  MR_RETURN_IF_ERROR(CheckGpuOptions(gpus));
  return gpus;
}

void SetGpuSource(GpuSource make) {
  Source& source = TheSource();
  MutexLock lock(&source.mu);
  source.make = std::move(make);
}

StatusOr<std::vector<std::shared_ptr<Device>>> LocalDevices(const LocalDeviceOptions& options) {
  MR_RETURN_IF_ERROR(CheckGpuOptions(options.gpus));
  std::vector<std::shared_ptr<Device>> devices;
  auto pool = std::make_shared<ThreadPool>("intra_op", ThreadCount(options.intra_op_threads) - 1);
  for (int i = 0; i < options.cpu_devices; ++i) {
    devices.push_back(NewCpuDevice({.name = absl::StrCat(options.task, "/device:CPU:", i), .pool = pool}));
  }
  const GpuSource make = CurrentSource();
  StatusOr<std::vector<std::unique_ptr<Device>>> gpus =
      make != nullptr
          ? make(options, pool)
          : NewCudaDevices(
                {.task = options.task, .count = options.gpu_devices, .gpus = options.gpus, .host_threads = pool});
  if (absl::IsInvalidArgument(gpus.status())) return gpus.status();
  if (!gpus.ok()) {
    MR_LOG(Error, "continuing without GPUs: ", gpus.status().ToString());
    return devices;
  }
  for (auto& gpu : *gpus) devices.push_back(std::move(gpu));
  return devices;
}

}  // namespace millrace
