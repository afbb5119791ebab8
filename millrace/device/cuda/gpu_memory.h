// Stream-ordered GPU memory.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "millrace/device/cuda/handle.h"
#include "millrace/device/device_memory.h"
#include "millrace/device/gpu_layout.h"
#include "millrace/tensor/memory_budget.h"

namespace millrace {

class GpuAllocator;

// A block of GPU memory. Releasing it frees it in compute-stream order: work enqueued before may still use it, and its
// reuse comes after.
class GpuBuffer final : public DeviceBuffer {
 public:
  int ordinal() const;
  Allocator* allocator() const override;
  Status CopyFrom(const DeviceBuffer& from, size_t bytes) override;
  Status CopyBoxFrom(const DeviceBuffer* from, const void* first, void* to, size_t size, const CopyBox& box) override;
  Status Clear(void* at, size_t bytes) override;

  // Records that a copy on another stream fills this memory until `event`; users wait for the event on the device.
  void FilledBy(std::shared_ptr<const CudaEvent> event);
  // Makes work enqueued on the compute stream from now on wait for the copy that fills this memory.
  Status AwaitOnCompute() const;
  // The same for any other stream.
  Status AwaitOn(cudaStream_t stream) const;

 private:
  friend class GpuAllocator;
  GpuBuffer(GpuAllocator* allocator, void* data, size_t size) : DeviceBuffer(data, size), allocator_(allocator) {}
  void Destroy() override;
  // Before work on the compute stream that uses this memory and `from`.
  Status Prepare(const DeviceBuffer* from) const;

  GpuAllocator* const allocator_;
  std::shared_ptr<const CudaEvent> filled_;  // set once, before the buffer is shared
  mutable std::atomic<bool> awaited_{true};
};

// The buffer of a tensor; null if it is not GPU memory.
const GpuBuffer* GpuBufferOf(const Tensor& tensor);

// Allocates, within the device's limit, from a CUDA memory pool that retains freed memory. Thread-safe; never
// destroyed.
class GpuAllocator : public Allocator {
 public:
  GpuAllocator(std::string device, const GpuPlace& place, cudaStream_t compute)
      : device_(std::move(device)),
        ordinal_(place.card),
        compute_(compute),
        budget_(MakeRef<MemoryBudget>(device_, place.memory_limit, nullptr)) {}
  Status Init();

  // For use on the compute stream. Null if memory is exhausted, or the device's limit reached.
  RefPtr<Buffer> Allocate(size_t bytes) override;
  // For use on `stream` first and, after an event, on the compute stream.
  RefPtr<GpuBuffer> AllocateOn(cudaStream_t stream, size_t bytes);
  const char* name() const override { return device_.c_str(); }
  // How much is used, and of what.
  std::string Shortage(size_t bytes) const override;

  const std::string& device() const { return device_; }
  int ordinal() const { return ordinal_; }
  cudaStream_t compute() const { return compute_; }
  // A buffer of so many bytes was freed.
  void OnFreed(size_t bytes) { budget_->Release(bytes); }
  // Bytes of the buffers that exist.
  size_t bytes_in_use() const { return budget_->used(); }

 private:
  const std::string device_;
  const int ordinal_;
  const cudaStream_t compute_;
  const RefPtr<MemoryBudget> budget_;
  CudaPool pool_;
};

}  // namespace millrace
