#include "millrace/cluster/codec/field_reader.h"

#include <algorithm>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/stubs/common.h"

namespace millrace {
namespace {

// Messages of up to this size are first copied to the stack and parsed from there.
constexpr size_t kSmallMessage = 256;

bool IsUtf8(const std::string& text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return ascii || google::protobuf::internal::IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()));
}

}  // namespace

void FieldReader::ReadString(std::string* text) {
  if (!in_->ReadString(size(), text) || !IsUtf8(*text)) ok_ = false;
}

void FieldReader::ReadMessage(google::protobuf::MessageLite* message) {
  if (size() == 0) return;
  if (size() <= kSmallMessage) {
    uint8_t text[kSmallMessage];
    ok_ &= in_->Read(text, size());
    google::protobuf::io::CodedInputStream stream(text, static_cast<int>(size()));
    ok_ = ok_ && message->MergeFromCodedStream(&stream) && stream.ConsumedEntireMessage();
    return;
  }
  net::Bytes bytes;
  if (size() > kMaxLength || !in_->ReadBytes(size(), &bytes)) {
    ok_ = false;
    return;
  }
  net::BytesInputStream stream(bytes);
  ok_ &= message->MergeFromBoundedZeroCopyStream(&stream, static_cast<int>(size()));
}

Status FieldReader::End(string_view type) const {
  if (ok_) return absl::OkStatus();
  return InvalidArgument("the bytes of a ", type, " are malformed, ", in_->remaining(), " bytes before their end");
}

}  // namespace millrace
