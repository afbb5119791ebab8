// Reads a protobuf message field by field from the pieces that it arrived in.
//
// For messages that carry tensors: what is large stays where it is until its place is known. Accepts what protobuf's own
// parser accepts, and nothing else: fields in any order, unknown fields and groups, known fields of another wire type.
#pragma once

#include <limits>
#include <string>

#include "google/protobuf/message_lite.h"
#include "millrace/base/status.h"
#include "millrace/net/bytes.h"

namespace millrace {

// The tag of a field that holds a number, or a string or message.
constexpr uint32_t VarintTag(uint32_t field) { return field << 3; }
constexpr uint32_t BytesTag(uint32_t field) { return field << 3 | 2; }

//   FieldReader in(&bytes_reader);
//   while (in.Next()) {
//     switch (in.tag()) {
//       case BytesTag(1): in.ReadString(&name); break;
//       default: in.Skip();
//     }
//   }
//   return in.End("NamedTensorProto");
//
// An error is kept: Next is false from then on, and End tells.
class FieldReader {
 public:
  // protobuf's own limit of a length.
  static constexpr size_t kMaxLength = std::numeric_limits<int>::max() - 16;

  // All that `in` has left; it outlives this. Fields longer than `longest` are malformed.
  explicit FieldReader(net::BytesReader* in, size_t longest = kMaxLength) : in_(in), longest_(longest) {}

  // Goes to the next field. The bytes of a field with a BytesTag are to be read or skipped before the next call; numbers,
  // and groups, which nothing here uses, are behind the reader already.
  bool Next();
  uint32_t tag() const { return tag_; }
  uint32_t field() const { return tag_ >> 3; }
  uint64_t number() const { return number_; }  // of a field with a VarintTag
  size_t size() const { return size_; }        // of a field with a BytesTag; that many bytes are there

  // An error for text that is not UTF-8, as for protobuf.
  void ReadString(std::string* text);
  // Merges the field into `message`.
  void ReadMessage(google::protobuf::MessageLite* message);
  void Skip();
  // The fields of the message that this field holds. This reader may go on when that one is at its end.
  FieldReader Enter() { return FieldReader(in_, longest_, in_->remaining() - size_); }
  // Where the field's bytes begin.
  const net::BytesReader& place() const { return *in_; }

  bool ok() const { return ok_; }
  void Fail() { ok_ = false; }
  // INVALID_ARGUMENT naming the type of message when anything was malformed.
  Status End(string_view type) const;

 private:
  FieldReader(net::BytesReader* in, size_t longest, size_t end) : in_(in), longest_(longest), end_(end) {}

  bool ReadVarint(uint64_t* value) { return in_->ReadVarint(value) && in_->remaining() >= end_; }
  bool ReadTag(uint32_t* tag);
  bool SkipBytes(size_t size) { return size <= in_->remaining() - end_ && in_->Skip(size); }
  // What follows `tag`; sets number_ and size_.
  bool ReadValue(uint32_t tag);
  bool SkipGroup(uint32_t field);

  net::BytesReader* const in_;
  const size_t longest_;
  const size_t end_ = 0;  // what in_ has left at the end of the message
  uint32_t tag_ = 0;
  uint64_t number_ = 0;
  size_t size_ = 0;
  bool ok_ = true;
};

}  // namespace millrace
