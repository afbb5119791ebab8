#include "millrace/device/cpu/cpu_device.h"

#include <cstring>
#include <random>
#include <utility>

#include "millrace/base/affinity.h"

namespace millrace {
namespace {

class CpuStream : public Stream {
 public:
  void WhenDone(absl::AnyInvocable<void(Status)> done) override { done(absl::OkStatus()); }
  Status Synchronize() override { return absl::OkStatus(); }
};

uint64_t RandomIncarnation() {
  std::random_device entropy;
  return (static_cast<uint64_t>(entropy()) << 32 | entropy()) | 1;
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options)
      : Device(options.name, "CPU", options.incarnation != 0 ? options.incarnation : RandomIncarnation()),
        pool_(options.pool) {
    if (pool_ != nullptr) return;
    int threads = options.intra_op_threads;
    if (threads <= 0) threads = AllowedCoreCount();
    pool_ = std::make_shared<ThreadPool>("intra_op", threads - 1);
  }

  Allocator* allocator() override { return Allocator::Heap(); }
  Stream* stream() override { return &stream_; }
  ThreadPool* intra_op_pool() override { return pool_.get(); }
  void CopyFromHost(const Tensor& host, Tensor* here, absl::AnyInvocable<void(Status)> done) override {
    *here = host;
    done(absl::OkStatus());
  }
  void CopyToHost(const Tensor& here, Tensor* host, absl::AnyInvocable<void(Status)> done) override {
    *host = here;
    done(absl::OkStatus());
  }
  bool shares_host_memory() const override { return true; }

 private:
  CpuStream stream_;
  std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

std::unique_ptr<Device> NewCpuDevice(const CpuDeviceOptions& options) { return std::make_unique<CpuDevice>(options); }

}  // namespace millrace
