// Memory of a GPU, given out and taken back in the order of its streams.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "millrace/device/cuda/handle.h"
#include "millrace/device/device_memory.h"

namespace millrace {

class GpuAllocator;

// A block of GPU memory. Letting go of it frees it in the order of the compute stream: what was enqueued
// before still finds it whole, and what reuses it comes after.
class GpuBuffer final : public DeviceBuffer {
 public:
  int ordinal() const;

  // A copy on another stream fills this memory until `event`; whoever uses it waits for that, on the device.
  void FilledBy(std::shared_ptr<const CudaEvent> event);
  // Makes what is enqueued on the compute stream from now on come after the copy that fills it.
  Status AwaitOnCompute() const;
  // The same for any other stream.
  Status AwaitOn(cudaStream_t stream) const;

 private:
  friend class GpuAllocator;
  GpuBuffer(GpuAllocator* allocator, void* data, size_t size)
      : DeviceBuffer(data, size), allocator_(allocator) {}
  void Destroy() override;

  GpuAllocator* const allocator_;
  std::shared_ptr<const CudaEvent> filled_;  // set once, before anybody else sees the buffer
  mutable std::atomic<bool> awaited_{true};
};

// The buffer behind a tensor; null when it is not GPU memory.
const GpuBuffer* GpuBufferOf(const Tensor& tensor);

// From a pool of CUDA's that keeps what comes back. Thread-safe; lives as long as the process.
class GpuAllocator : public Allocator {
 public:
  GpuAllocator(std::string device, int ordinal, cudaStream_t compute)
      : device_(std::move(device)), ordinal_(ordinal), compute_(compute) {}
  Status Init();

  // For use on the compute stream. Null when there is no memory.
  RefPtr<Buffer> Allocate(size_t bytes) override;
  // For use on `stream` first, and, after an event, on the compute stream.
  RefPtr<GpuBuffer> AllocateOn(cudaStream_t stream, size_t bytes);
  const char* name() const override { return device_.c_str(); }

  const std::string& device() const { return device_; }
  int ordinal() const { return ordinal_; }
  cudaStream_t compute() const { return compute_; }
  // Bytes in use, as the pool counts them.
  uint64_t bytes_in_use() const;

 private:
  const std::string device_;
  const int ordinal_;
  const cudaStream_t compute_;
  CudaPool pool_;
};

}  // namespace millrace
