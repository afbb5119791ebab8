// Bytes as gRPC holds them.
#pragma once

#include <grpc/byte_buffer.h>

#include <memory>

#include "millrace/net/bytes.h"

namespace millrace::net {

struct DestroyByteBuffer {
  void operator()(grpc_byte_buffer* buffer) const { grpc_byte_buffer_destroy(buffer); }
};
using ByteBuffer = std::unique_ptr<grpc_byte_buffer, DestroyByteBuffer>;

// What a length on the wire can say.
constexpr size_t kMaxGrpcMessage = 0xffffffff;

// Large pieces are referenced until gRPC has sent them; small neighbours are copied together, since a reference and a buffer
// for the system to gather cost more.
ByteBuffer ToByteBuffer(const Bytes& bytes);

// Takes the buffer over; the pieces are the slices that gRPC received into. Null gives no bytes.
Bytes FromByteBuffer(ByteBuffer buffer);

}  // namespace millrace::net
