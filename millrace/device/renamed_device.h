// A device under another name, for a session whose cluster gives this task a different name.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/device/device.h"

namespace millrace {

class RenamedDevice : public Device {
 public:
  RenamedDevice(std::shared_ptr<Device> device, std::string name)
      : Device(std::move(name), device->type(), device->incarnation()), device_(std::move(device)) {}

  Allocator* allocator() override { return device_->allocator(); }
  Stream* stream() override { return device_->stream(); }
  ThreadPool* intra_op_pool() override { return device_->intra_op_pool(); }
  void CopyFromHost(const Tensor& host, Tensor* here, absl::AnyInvocable<void(Status)> done) override {
    device_->CopyFromHost(host, here, std::move(done));
  }
  void CopyToHost(const Tensor& here, Tensor* host, absl::AnyInvocable<void(Status)> done) override {
    device_->CopyToHost(here, host, std::move(done));
  }
  bool shares_host_memory() const override { return device_->shares_host_memory(); }
  Device* underlying() override { return device_->underlying(); }
  MemoryUse memory_use() const override { return device_->memory_use(); }
  std::string model() const override { return device_->model(); }

 private:
  const std::shared_ptr<Device> device_;
};

// The same device under the name of `task` ("/job:ps/replica:0/task:0").
inline std::shared_ptr<Device> RenameDevice(std::shared_ptr<Device> device, const std::string& task) {
  const std::string name = device->name();
  const size_t at = name.find("/device:");
  return std::make_shared<RenamedDevice>(std::move(device), absl::StrCat(task, name.substr(at)));
}

}  // namespace millrace
