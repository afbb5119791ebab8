// Reads a protobuf message field by field from the pieces that it was received in.
//
// For messages that carry tensors: what is large stays where it is until its place is known.
#pragma once

#include <string>

#include "google/protobuf/message_lite.h"
#include "millrace/base/status.h"
#include "millrace/base/wire_reader.h"
#include "millrace/net/bytes.h"

namespace millrace {

//   FieldReader in(&bytes_reader);
//   while (in.Next()) {
//     switch (in.tag()) {
//       case BytesTag(1): in.ReadString(&name); break;
//       default: in.Skip();
//     }
//   }
//   return in.End("NamedTensorProto");
class FieldReader : public WireReader<net::BytesReader> {
 public:
  using WireReader::WireReader;

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
};

}  // namespace millrace
