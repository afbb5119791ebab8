// The bytes of a message: a sequence of pieces of memory, each kept alive by its owner.
//
// A large tensor is one piece, its own buffer, so sending it copies nothing. A received message stays in the pieces
// that the transport received it into until it is read.
#pragma once

#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message_lite.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"

namespace millrace::net {

// A value type; copies share the pieces.
class Bytes {
 public:
  struct Piece {
    absl::string_view data;
    RefPtr<const RefCounted> owner;  // keeps `data` alive
  };

  Bytes() = default;
  // Takes ownership of the text.
  static Bytes Of(std::string text);

  // Appends a piece; an empty one is skipped.
  void Append(absl::string_view data, RefPtr<const RefCounted> owner);
  void Append(Bytes other);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  absl::Span<const Piece> pieces() const { return pieces_; }
  // A copy of all bytes in one string.
  std::string Flatten() const;

 private:
  absl::InlinedVector<Piece, 2> pieces_;
  size_t size_ = 0;
};

// Reads Bytes from front to back. Cheap to copy; a copy serves as a bookmark. The Bytes must outlive it.
class BytesReader {
 public:
  explicit BytesReader(const Bytes& bytes);

  size_t remaining() const { return remaining_; }
  // All of these return false, and leave the position undefined, if fewer bytes remain.
  [[nodiscard]] bool Read(void* to, size_t size);
  [[nodiscard]] bool Skip(size_t size);
  [[nodiscard]] bool ReadVarint(uint64_t* value);
  [[nodiscard]] bool ReadString(size_t size, std::string* text);
  // The next `size` bytes as Bytes of their own, sharing the pieces.
  [[nodiscard]] bool ReadBytes(size_t size, Bytes* bytes);

 private:
  void NextPiece();

  const Bytes* bytes_;
  size_t piece_ = 0;
  size_t at_ = 0;  // within the piece
  size_t remaining_;
};

// An input stream for protobuf's parsers. The Bytes must outlive it.
class BytesInputStream : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit BytesInputStream(const Bytes& bytes) : bytes_(bytes) {}
  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return count_; }

 private:
  const Bytes& bytes_;
  size_t piece_ = 0;
  size_t at_ = 0;
  int64_t count_ = 0;
};

Bytes Serialize(const google::protobuf::MessageLite& message);
// INVALID_ARGUMENT names the message type if the bytes cannot be parsed as one.
Status Parse(const Bytes& bytes, google::protobuf::MessageLite* message);

}  // namespace millrace::net
