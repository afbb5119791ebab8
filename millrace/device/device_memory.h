// Tensors in device memory, which the host must not dereference.
#pragma once

#include "millrace/tensor/tensor.h"

namespace millrace {

// Memory of a device that does not share host memory. Its data() is valid on that device only.
class DeviceBuffer : public Buffer {
 protected:
  using Buffer::Buffer;
};

inline bool IsDeviceMemory(const Tensor& tensor) {
  return tensor.buffer() && dynamic_cast<const DeviceBuffer*>(tensor.buffer()->root()) != nullptr;
}

}  // namespace millrace
