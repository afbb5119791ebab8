// Writes a protobuf message: small things as text, what is large as pieces of memory that exists.
#pragma once

#include <string>

#include "google/protobuf/message_lite.h"
#include "millrace/base/status.h"
#include "millrace/net/bytes.h"

namespace millrace {

// How many bytes Varint writes.
constexpr size_t VarintSize(uint64_t value) {
  size_t size = 1;
  while (value >>= 7) ++size;
  return size;
}

class MessageWriter {
 public:
  // What protobuf can parse: it counts in int.
  static constexpr size_t kMaxSize = (size_t{1} << 31) - 1;

  // INVALID_ARGUMENT in the end when the message is longer than `most`.
  explicit MessageWriter(size_t most = kMaxSize) : most_(most) { text_.reserve(kFirstText); }

  // What proto3 takes for granted (0, false, "") is left out.
  void Number(uint32_t field, int64_t value);
  void String(uint32_t field, string_view value);
  // An element of a repeated field: also when it is empty.
  void RepeatedString(uint32_t field, string_view value);
  // Also when it is empty: a message that is there.
  void Message(uint32_t field, const google::protobuf::MessageLite& message);
  // Numbers its code as TensorFlow does; nothing for OK. A message that is not UTF-8 (a user's strings may be quoted in it) loses the
  // bytes that are not ASCII.
  void StatusFields(uint32_t code_field, uint32_t message_field, const Status& status);

  void Varint(uint64_t value);
  void Text(string_view text) { text_.append(text.data(), text.size()); }
  // Shares the memory.
  void Piece(string_view data, RefPtr<const RefCounted> owner);
  // For text that is written in place.
  std::string* text() { return &text_; }

  size_t size() const { return bytes_.size() + text_.size(); }
  size_t most() const { return most_; }
  // The message, and a writer that is used up.
  StatusOr<net::Bytes> Take(string_view type) &&;

 private:
  // What most messages of a step fit in.
  static constexpr size_t kFirstText = 192;

  const size_t most_;
  net::Bytes bytes_;
  std::string text_;  // comes behind bytes_
};

}  // namespace millrace
