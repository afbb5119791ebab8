// Reads a protobuf message field by field from the pieces that it was received in.
//
// For messages that carry tensors: what is large stays where it is until its place is known.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message_lite.h"
#include "millrace/base/status.h"
#include "millrace/base/wire_reader.h"
#include "millrace/net/bytes.h"

namespace millrace {

//   FieldReader in(&bytes_reader);
//   while (in.Next()) {
//     in.Take(1, &name) || in.Take(2, &count) || in.Ignore();
//   }
//   return in.End("NamedTensorProto");
class FieldReader : public WireReader<net::BytesReader> {
 public:
  using WireReader::WireReader;

  // Reads the current field if it has this number and the wire type of the variable; otherwise returns false. A field
  // that is there again replaces what was read before, is merged into it (messages) or is appended (lists).
  bool Take(uint32_t field, int64_t* number) { return TakeNumber(field, number); }
  bool Take(uint32_t field, uint64_t* number) { return TakeNumber(field, number); }
  bool Take(uint32_t field, bool* flag) {
    if (tag() != VarintTag(field)) return false;
    *flag = number() != 0;
    return true;
  }
  bool Take(uint32_t field, std::string* text) {
    if (tag() != BytesTag(field)) return false;
    ReadString(text);
    return true;
  }
  bool Take(uint32_t field, std::vector<std::string>* texts) {
    return tag() == BytesTag(field) && Take(field, &texts->emplace_back());
  }
  bool Take(uint32_t field, google::protobuf::MessageLite* message) {
    if (tag() != BytesTag(field)) return false;
    ReadMessage(message);
    return true;
  }
  // Skips the current field. Returns true.
  bool Ignore() {
    Skip();
    return true;
  }

  // Fails for text that is not UTF-8, like protobuf.
  void ReadString(std::string* text);
  // Merges the field into `message`.
  void ReadMessage(google::protobuf::MessageLite* message);
  // A reader for the message in this field. This reader may continue when that one has reached its end.
  FieldReader Enter() { return FieldReader(in_, longest_, in_->remaining() - size()); }
  // The position of the field's bytes.
  const net::BytesReader& place() const { return *in_; }
  // INVALID_ARGUMENT, naming the message type, if anything was malformed.
  Status End(string_view type) const;

 private:
  FieldReader(net::BytesReader* in, size_t longest, size_t end) : WireReader(in, longest, end) {}

  template <typename T>
  bool TakeNumber(uint32_t field, T* to) {
    if (tag() != VarintTag(field)) return false;
    *to = static_cast<T>(number());
    return true;
  }
};

}  // namespace millrace
