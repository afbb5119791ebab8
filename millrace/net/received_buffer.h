// Memory that a transport received a piece of a message into.
#pragma once

#include "millrace/tensor/buffer.h"

namespace millrace::net {

// Nobody but the holders of the message sees it: unlike a piece that shares its sender's memory, it may become a tensor's buffer.
class ReceivedBuffer : public Buffer {
 protected:
  using Buffer::Buffer;
};

}  // namespace millrace::net
