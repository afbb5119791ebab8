#include "millrace/net/grpc/byte_buffer.h"

#include <grpc/slice.h>

#include <cstring>
#include <utility>

namespace millrace::net {
namespace {

constexpr size_t kSmall = 4096;

grpc_slice ReferencingSlice(const Bytes::Piece& piece) {
  const RefCounted* owner = RefPtr<const RefCounted>(piece.owner).release();
  return grpc_slice_new_with_user_data(
      const_cast<char*>(piece.data.data()), piece.data.size(),
      [](void* owner) { static_cast<const RefCounted*>(owner)->Unref(); }, const_cast<RefCounted*>(owner));
}

grpc_slice CopyOf(absl::Span<const Bytes::Piece> pieces) {
  size_t size = 0;
  for (const Bytes::Piece& piece : pieces) size += piece.data.size();
  grpc_slice slice = grpc_slice_malloc(size);
  uint8_t* to = GRPC_SLICE_START_PTR(slice);
  for (const Bytes::Piece& piece : pieces) {
    std::memcpy(to, piece.data.data(), piece.data.size());
    to += piece.data.size();
  }
  return slice;
}

class Received : public RefCounted {
 public:
  explicit Received(ByteBuffer buffer) : buffer(std::move(buffer)) {}
  const ByteBuffer buffer;
};

}  // namespace

ByteBuffer ToByteBuffer(const Bytes& bytes) {
  const auto pieces = bytes.pieces();
  absl::InlinedVector<grpc_slice, 8> slices;
  for (size_t i = 0; i < pieces.size();) {
    size_t end = i;
    // A piece without an owner is memory that lives as long as the caller says, not as long as gRPC wants.
    while (end < pieces.size() && (pieces[end].data.size() < kSmall || !pieces[end].owner)) ++end;
    if (end > i) {
      slices.push_back(CopyOf(pieces.subspan(i, end - i)));
      i = end;
    } else {
      slices.push_back(ReferencingSlice(pieces[i++]));
    }
  }
  ByteBuffer buffer(grpc_raw_byte_buffer_create(slices.data(), slices.size()));
  for (grpc_slice& slice : slices) grpc_slice_unref(slice);
  return buffer;
}

Bytes FromByteBuffer(ByteBuffer buffer) {
  Bytes bytes;
  if (buffer == nullptr) return bytes;
  const auto owner = MakeRef<Received>(std::move(buffer));
  const grpc_slice_buffer& slices = owner->buffer->data.raw.slice_buffer;
  for (size_t i = 0; i < slices.count; ++i) {
    const grpc_slice& slice = slices.slices[i];
    bytes.Append({reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)}, owner);
  }
  return bytes;
}

}  // namespace millrace::net
