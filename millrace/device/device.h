// Where kernels run: memory, streams and threads of one processor.
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

// Work of one device in order. A kernel enqueues and returns; on the CPU, work is done when
// the call returns, so its stream is empty.
class Stream {
 public:
  virtual ~Stream() = default;
  // Calls `done` after everything enqueued so far, on any thread.
  virtual void WhenDone(absl::AnyInvocable<void(Status)> done) = 0;
  // Waits for it.
  virtual Status Synchronize() = 0;
};

// Thread-safe. Lives as long as the sessions that use it.
class Device {
 public:
  virtual ~Device() = default;

  const std::string& name() const { return name_; }  // "/job:localhost/replica:0/task:0/device:CPU:0"
  const std::string& type() const { return type_; }  // "CPU"
  // Random for each start of the process: tells a restarted device from the one before.
  uint64_t incarnation() const { return incarnation_; }

  virtual Allocator* allocator() = 0;
  virtual Stream* stream() = 0;
  // Threads for one wide op; null where the device brings its own parallelism.
  virtual ThreadPool* intra_op_pool() = 0;

  // Copies between this device's memory and the host's, in the order of the stream.
  virtual void CopyFromHost(const Tensor& host, Tensor* here, absl::AnyInvocable<void(Status)> done) = 0;
  virtual void CopyToHost(const Tensor& here, Tensor* host, absl::AnyInvocable<void(Status)> done) = 0;
  // True when kernels of this device can read host memory as it is.
  virtual bool shares_host_memory() const = 0;

 protected:
  Device(std::string name, std::string type, uint64_t incarnation)
      : name_(std::move(name)), type_(std::move(type)), incarnation_(incarnation) {}

 private:
  const std::string name_;
  const std::string type_;
  const uint64_t incarnation_;
};

}  // namespace millrace
