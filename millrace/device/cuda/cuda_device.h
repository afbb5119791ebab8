// A GPU as a Device.
#pragma once

#include <memory>
#include <string>

#include "millrace/device/cuda/gpu.h"
#include "millrace/device/device.h"

namespace millrace {

// A session's view of a Gpu. All sessions share the Gpu.
class CudaDevice : public Device, public FallibleDevice {
 public:
  CudaDevice(std::string name, Gpu* gpu, std::shared_ptr<ThreadPool> host_threads);

  // The Gpu of a device of type "GPU".
  static Gpu* GpuOf(Device* device) { return static_cast<CudaDevice*>(device->underlying())->gpu_; }

  Allocator* allocator() override { return gpu_->allocator(); }
  Stream* stream() override { return &stream_; }
  // The host's.
  ThreadPool* intra_op_pool() override { return host_threads_.get(); }
  // Calls `done` as soon as the copy is enqueued; kernels wait for it on the device.
  void CopyFromHost(const Tensor& host, Tensor* here, absl::AnyInvocable<void(Status)> done) override;
  void CopyToHost(const Tensor& here, Tensor* host, absl::AnyInvocable<void(Status)> done) override;
  bool shares_host_memory() const override { return false; }
  MemoryUse memory_use() const override;
  std::string model() const override { return gpu_->model(); }
  const DeviceHealth& health() const override { return gpu_->health(); }

 private:
  class ComputeStream : public Stream {
   public:
    explicit ComputeStream(Gpu* gpu) : gpu_(gpu) {}
    void WhenDone(absl::AnyInvocable<void(Status)> done) override { gpu_->WhenDone(std::move(done)); }
    Status Synchronize() override { return gpu_->Synchronize(); }

   private:
    Gpu* const gpu_;
  };

  Gpu* const gpu_;
  ComputeStream stream_;
  const std::shared_ptr<ThreadPool> host_threads_;
};

}  // namespace millrace
