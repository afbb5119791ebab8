// Device: the memory, stream and threads of one processor that kernels run on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "millrace/base/status.h"
#include "millrace/base/thread_pool.h"
#include "millrace/tensor/buffer.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// An in-order queue of device work. A kernel enqueues work and returns; on the CPU, work is complete when the kernel
// returns, so the stream is always empty.
class Stream {
 public:
  virtual ~Stream() = default;
  // Calls `done` on any thread once everything enqueued so far has completed.
  virtual void WhenDone(absl::AnyInvocable<void(Status)> done) = 0;
  // Blocks until everything enqueued so far has completed.
  virtual Status Synchronize() = 0;
};

// Thread-safe. Must outlive the sessions that use it.
class Device {
 public:
  virtual ~Device() = default;

  const std::string& name() const { return name_; }  // "/job:localhost/replica:0/task:0/device:CPU:0"
  const std::string& type() const { return type_; }  // "CPU"
  // Random per process start: distinguishes a restarted device from its predecessor.
  uint64_t incarnation() const { return incarnation_; }

  virtual Allocator* allocator() = 0;
  virtual Stream* stream() = 0;
  // Threads for parallelism within an op; null if the device has its own.
  virtual ThreadPool* intra_op_pool() = 0;

  // Copies between this device's memory and host memory, in stream order.
  virtual void CopyFromHost(const Tensor& host, Tensor* here, absl::AnyInvocable<void(Status)> done) = 0;
  virtual void CopyToHost(const Tensor& here, Tensor* host, absl::AnyInvocable<void(Status)> done) = 0;
  // True if kernels of this device can access host memory directly.
  virtual bool shares_host_memory() const = 0;

  // The device that does the work, if this is another name for it; otherwise this device.
  virtual Device* underlying() { return this; }

  struct MemoryUse {
    int64_t limit = 0;  // bytes; 0 if none is known
    int64_t in_use = 0;
  };
  virtual MemoryUse memory_use() const { return {}; }
  // The model, such as "NVIDIA H200"; empty if it has none.
  virtual std::string model() const { return {}; }

 protected:
  Device(std::string name, std::string type, uint64_t incarnation)
      : name_(std::move(name)), type_(std::move(type)), incarnation_(incarnation) {}

 private:
  const std::string name_;
  const std::string type_;
  const uint64_t incarnation_;
};

}  // namespace millrace
