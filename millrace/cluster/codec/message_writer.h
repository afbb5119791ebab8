// Writes a protobuf message. Small fields are copied; large ones are shared as pieces of existing memory.
#pragma once

#include <string>

#include "google/protobuf/message_lite.h"
#include "millrace/base/status.h"
#include "millrace/net/bytes.h"

namespace millrace {

// The number of bytes that Varint writes.
constexpr size_t VarintSize(uint64_t value) {
  size_t size = 1;
  while (value >>= 7) ++size;
  return size;
}

class MessageWriter {
 public:
  // The largest message that protobuf can parse, since it counts in int.
  static constexpr size_t kMaxSize = (size_t{1} << 31) - 1;

  // If the message becomes longer than `most`, Take returns INVALID_ARGUMENT.
  explicit MessageWriter(size_t most = kMaxSize) : most_(most) { text_.reserve(kFirstText); }

  // Default values of proto3 (0, false, "") are omitted.
  void Number(uint32_t field, int64_t value);
  void String(uint32_t field, string_view value);
  // Writes an element of a repeated field, even if it is empty.
  void RepeatedString(uint32_t field, string_view value);
  // Writes a message field, even if it is empty: presence matters.
  void Message(uint32_t field, const google::protobuf::MessageLite& message);
  // Writes a status with TensorFlow's numbering of codes; writes nothing for OK. If the message is not UTF-8 (it may
  // quote a user's strings), its non-ASCII bytes are removed.
  void StatusFields(uint32_t code_field, uint32_t message_field, const Status& status);

  void Varint(uint64_t value);
  void Text(string_view text) { text_.append(text.data(), text.size()); }
  // Appends a piece that shares the memory.
  void Piece(string_view data, RefPtr<const RefCounted> owner);
  // For text that is generated in place.
  std::string* text() { return &text_; }

  size_t size() const { return bytes_.size() + text_.size(); }
  size_t most() const { return most_; }
  // Returns the message; the writer must not be used after this.
  StatusOr<net::Bytes> Take(string_view type) &&;

 private:
  // Enough for most messages of a step.
  static constexpr size_t kFirstText = 192;

  const size_t most_;
  net::Bytes bytes_;
  std::string text_;  // follows bytes_
};

}  // namespace millrace
