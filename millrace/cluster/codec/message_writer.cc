#include "millrace/cluster/codec/message_writer.h"

#include <utility>

#include "google/protobuf/stubs/common.h"
#include "millrace/cluster/codec/field_reader.h"

namespace millrace {
namespace {

std::string AsUtf8(string_view text) {
  std::string result(text);
  if (!google::protobuf::internal::IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()))) {
    for (char& c : result) {
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    }
  }
  return result;
}

}  // namespace

void MessageWriter::Varint(uint64_t value) {
  while (value >= 0x80) {
    text_.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  text_.push_back(static_cast<char>(value));
}

void MessageWriter::Number(uint32_t field, int64_t value) {
  if (value == 0) return;
  Varint(VarintTag(field));
  Varint(static_cast<uint64_t>(value));
}

void MessageWriter::String(uint32_t field, string_view value) {
  if (!value.empty()) RepeatedString(field, value);
}

void MessageWriter::RepeatedString(uint32_t field, string_view value) {
  Varint(BytesTag(field));
  Varint(value.size());
  Text(value);
}

void MessageWriter::Message(uint32_t field, const google::protobuf::MessageLite& message) {
  Varint(BytesTag(field));
  const size_t size = message.ByteSizeLong();
  Varint(size);
  // If this exceeds what protobuf can write, the whole message is too long, which Take reports.
  if (size > 0 && !message.AppendPartialToString(&text_)) text_.resize(text_.size() + size);
}

void MessageWriter::StatusFields(uint32_t code_field, uint32_t message_field, const Status& status) {
  if (status.ok()) return;
  Number(code_field, static_cast<int>(status.code()));
  String(message_field, AsUtf8(status.message()));
}

void MessageWriter::Piece(string_view data, RefPtr<const RefCounted> owner) {
  if (!text_.empty()) bytes_.Append(net::Bytes::Of(std::exchange(text_, {})));
  bytes_.Append(data, std::move(owner));
}

StatusOr<net::Bytes> MessageWriter::Take(string_view type) && {
  if (size() > most_) {
    return InvalidArgument("a ", type, " would have ", size(), " bytes; a message can hold ", most_, " at most");
  }
  if (!text_.empty()) bytes_.Append(net::Bytes::Of(std::move(text_)));
  return std::move(bytes_);
}

}  // namespace millrace
