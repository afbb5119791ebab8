// Memory into which a transport has received a piece of a message.
#pragma once

#include "millrace/tensor/buffer.h"

namespace millrace::net {

// Only the holders of the message refer to it. Unlike a piece that shares the sender's memory, it may become a tensor's
// buffer.
class ReceivedBuffer : public Buffer {
 protected:
  using Buffer::Buffer;
};

}  // namespace millrace::net
