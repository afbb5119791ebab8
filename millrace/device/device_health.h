// Devices that can fail for good while the process goes on.
#pragma once

#include <atomic>
#include <string>

#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/device/device.h"

namespace millrace {

// Whether a device still works. Thread-safe.
class DeviceHealth {
 public:
  // `name` is for messages: "GPU:0 (NVIDIA H200)".
  explicit DeviceHealth(std::string name) : name_(std::move(name)) {}

  // The device has failed, and nothing but another process can use it again. The first call counts, and is logged.
  void Fail(const Status& why);
  // OK, or UNAVAILABLE with the device's name and why it failed.
  Status status() const;

 private:
  const std::string name_;
  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  Status why_ ABSL_GUARDED_BY(mu_);
};

// Implemented by such devices.
class FallibleDevice {
 public:
  virtual const DeviceHealth& health() const = 0;

 protected:
  ~FallibleDevice() = default;
};

// UNAVAILABLE, saying why, if `device` has failed. Cheap, but not free: once in a step, not once for each node.
Status HealthOf(Device* device);

}  // namespace millrace
