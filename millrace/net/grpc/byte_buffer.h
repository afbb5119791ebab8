// Conversion between Bytes and gRPC's byte buffers.
#pragma once

#include <grpc/byte_buffer.h>

#include <memory>

#include "millrace/net/bytes.h"

namespace millrace::net {

struct DestroyByteBuffer {
  void operator()(grpc_byte_buffer* buffer) const { grpc_byte_buffer_destroy(buffer); }
};
using ByteBuffer = std::unique_ptr<grpc_byte_buffer, DestroyByteBuffer>;

// The largest length that the wire format can express.
constexpr size_t kMaxGrpcMessage = 0xffffffff;

// Large pieces are referenced until gRPC has sent them. Adjacent small pieces are copied into one, since that is
// cheaper than a reference and an iovec entry for each.
ByteBuffer ToByteBuffer(const Bytes& bytes);

// Takes ownership; the pieces are the slices that gRPC received into. Null gives empty Bytes.
Bytes FromByteBuffer(ByteBuffer buffer);

}  // namespace millrace::net
