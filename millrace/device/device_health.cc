#include "millrace/device/device_health.h"

#include "millrace/base/log.h"

namespace millrace {

void DeviceHealth::Fail(const Status& why) {
  {
    MutexLock lock(&mu_);
    if (failed_.load(std::memory_order_relaxed)) return;
    why_ = Unavailable(
        name_, " has failed, and only another process can use it again; this one goes on without it. It failed with: ",
        why.message());
    failed_.store(true, std::memory_order_release);
  }
  MR_LOG(Error, status().message());
}

Status DeviceHealth::status() const {
  if (ABSL_PREDICT_TRUE(!failed_.load(std::memory_order_acquire))) return absl::OkStatus();
  MutexLock lock(&mu_);
  return why_;
}

Status HealthOf(Device* device) {
  const auto* const fallible = dynamic_cast<const FallibleDevice*>(device->underlying());
  return fallible == nullptr ? absl::OkStatus() : fallible->health().status();
}

}  // namespace millrace
