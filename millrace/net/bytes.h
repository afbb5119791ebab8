// A message as it travels: pieces of memory in order, each kept alive by its owner.
//
// A large tensor is one piece, its own buffer: nothing is copied to send it. What arrives stays in the
// pieces that the transport received it in until it is read.
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

// A value: copying shares the pieces.
class Bytes {
 public:
  struct Piece {
    absl::string_view data;
    RefPtr<const RefCounted> owner;  // keeps `data` alive
  };

  Bytes() = default;
  // Takes the text over.
  static Bytes Of(std::string text);

  // Adds a piece behind the others; an empty one is left out.
  void Append(absl::string_view data, RefPtr<const RefCounted> owner);
  void Append(Bytes other);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  absl::Span<const Piece> pieces() const { return pieces_; }
  // All of it in one string.
  std::string Flatten() const;

 private:
  absl::InlinedVector<Piece, 2> pieces_;
  size_t size_ = 0;
};

// Reads from front to back. Cheap to copy: a copy is a mark to come back to. The Bytes outlive it.
class BytesReader {
 public:
  explicit BytesReader(const Bytes& bytes);

  size_t remaining() const { return remaining_; }
  // All of these return false, and leave the place undefined, when there is not enough left.
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

// For protobuf's parsers. The Bytes outlive it.
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
// INVALID_ARGUMENT names the type of message that the bytes are not.
Status Parse(const Bytes& bytes, google::protobuf::MessageLite* message);

}  // namespace millrace::net
