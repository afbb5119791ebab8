// Which tensors the host must not look into.
#pragma once

#include "millrace/tensor/tensor.h"

namespace millrace {

// Memory of a device that does not share the host's. Its data() is an address for that device alone.
class DeviceBuffer : public Buffer {
 protected:
  using Buffer::Buffer;
};

inline bool IsDeviceMemory(const Tensor& tensor) {
  return tensor.buffer() && dynamic_cast<const DeviceBuffer*>(tensor.buffer()->root()) != nullptr;
}

}  // namespace millrace
