// Tensors in device memory, which the host must not dereference.
#pragma once

#include "millrace/device/copy_box.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Memory of a device that does not share host memory. Its data() is valid on that device only.
class DeviceBuffer : public Buffer {
 public:
  // Allocates from the same memory.
  virtual Allocator* allocator() const = 0;
  // Enqueues a copy of `from`, memory of the same device, to here; both are ordered with the device's kernels, and
  // either may be released once this has returned.
  virtual Status CopyFrom(const DeviceBuffer& from, size_t bytes) = 0;
  // The same for a box of elements of `size` bytes each (1, 2, 4, 8 or 16), whose first one is at `first` in `from` and
  // goes to `to` in here. The box is not empty, and source and target do not overlap. `from` is null if the source is
  // in host memory, which is an error unless the device can read that.
  virtual Status CopyBoxFrom(const DeviceBuffer* from, const void* first, void* to, size_t size,
                             const CopyBox& box) = 0;
  // Enqueues writing zeros.
  virtual Status Clear(void* at, size_t bytes) = 0;

 protected:
  using Buffer::Buffer;
};

// The device memory that a tensor is in; null if it is in host memory.
inline const DeviceBuffer* DeviceBufferOf(const Tensor& tensor) {
  return tensor.buffer() ? dynamic_cast<const DeviceBuffer*>(tensor.buffer()->root()) : nullptr;
}

inline bool IsDeviceMemory(const Tensor& tensor) { return DeviceBufferOf(tensor) != nullptr; }

}  // namespace millrace
