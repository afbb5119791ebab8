// A device of type "GPU" whose work is done late, in memory that the host may not touch.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/thread_pool.h"
#include "millrace/device/device.h"
#include "millrace/device/device_health.h"
#include "millrace/device/device_memory.h"
#include "millrace/device/gpu_layout.h"
#include "millrace/device/memory_holders.h"
#include "millrace/tensor/memory_budget.h"
#include "tests/late/late_stream.h"

namespace millrace::late {

// The memory and stream of one GPU; all sessions of the process share it. Never destroyed.
class LateCard : public Allocator {
 public:
  // The device of this number.
  static LateCard* Get(int number, const GpuPlace& place = {});

  RefPtr<Buffer> Allocate(size_t bytes) override;
  const char* name() const override { return name_.c_str(); }
  std::string Shortage(size_t bytes) const override { return DeviceShortage(*budget_, this, bytes); }
  void OnFreed(size_t bytes) { budget_->Release(bytes); }
  size_t bytes_in_use() const { return budget_->used(); }
  LateStream& stream() { return stream_; }
  const DeviceHealth& health() const { return health_; }
  // As a card that is broken: from now on its work is dropped, and waiting for it gives `why`.
  void Fail(const Status& why);
  // Memory of the card at `data`, whose owner keeps it.
  Tensor ViewOf(const Tensor& tensor);

 private:
  LateCard(int number, const GpuPlace& place);

  const std::string name_;
  const RefPtr<MemoryBudget> budget_;
  LateStream stream_;
  DeviceHealth health_{name_};
};

class LateDevice : public Device, public FallibleDevice {
 public:
  LateDevice(std::string name, LateCard* card, const GpuPlace& place, std::shared_ptr<ThreadPool> pool);

  LateCard* card() const { return card_; }
  static LateDevice* Of(Device* device) { return static_cast<LateDevice*>(device->underlying()); }

  Allocator* allocator() override { return card_; }
  Stream* stream() override { return &card_->stream(); }
  ThreadPool* intra_op_pool() override { return pool_.get(); }
  void CopyFromHost(const Tensor& host, Tensor* here, absl::AnyInvocable<void(Status)> done) override;
  void CopyToHost(const Tensor& here, Tensor* host, absl::AnyInvocable<void(Status)> done) override;
  bool shares_host_memory() const override { return false; }
  MemoryUse memory_use() const override;
  std::string model() const override { return "late"; }
  const DeviceHealth& health() const override { return card_->health(); }

 private:
  LateCard* const card_;
  const GpuPlace place_;
  const std::shared_ptr<ThreadPool> pool_;
};

// Gives every later task of this process `count` late cards of 16 GB, laid out as the first of them asks, and kernels
// to run on them.
void UseLateGpus(int count);

}  // namespace millrace::late
