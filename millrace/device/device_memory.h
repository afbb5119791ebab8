// Tensors in device memory, which the host must not dereference.
#pragma once

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

 protected:
  using Buffer::Buffer;
};

// The device memory that a tensor is in; null if it is in host memory.
inline const DeviceBuffer* DeviceBufferOf(const Tensor& tensor) {
  return tensor.buffer() ? dynamic_cast<const DeviceBuffer*>(tensor.buffer()->root()) : nullptr;
}

inline bool IsDeviceMemory(const Tensor& tensor) { return DeviceBufferOf(tensor) != nullptr; }

}  // namespace millrace
