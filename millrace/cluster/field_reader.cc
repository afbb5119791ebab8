#include "millrace/cluster/field_reader.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/stubs/common.h"

namespace millrace {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

// protobuf's own limit of nesting.
constexpr size_t kMaxDepth = 100;
// Messages up to this size are parsed from one piece of the stack.
constexpr size_t kSmallMessage = 256;

bool IsUtf8(const std::string& text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return ascii || google::protobuf::internal::IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()));
}

}  // namespace

bool FieldReader::Next() {
  if (!ok_ || in_->remaining() == end_) return false;
  ok_ = ReadTag(&tag_) && (tag_ & 7) != kEndGroup && ReadValue(tag_);
  return ok_;
}

bool FieldReader::ReadTag(uint32_t* tag) {
  const size_t before = in_->remaining();
  uint64_t value;
  // A tag takes five bytes at most; protobuf drops what the fifth has beyond 32 bits.
  if (!ReadVarint(&value) || before - in_->remaining() > 5) return false;
  *tag = static_cast<uint32_t>(value);
  return *tag >> 3 != 0;
}

bool FieldReader::ReadValue(uint32_t tag) {
  switch (tag & 7) {
    case kVarint:
      return ReadVarint(&number_);
    case kFixed64:
      return SkipBytes(8);
    case kFixed32:
      return SkipBytes(4);
    case kBytes: {
      uint64_t size;
      if (!ReadVarint(&size) || size > std::min(longest_, in_->remaining() - end_)) return false;
      size_ = size;
      return true;
    }
    case kStartGroup:
      return SkipGroup(tag >> 3);
    default:
      return false;
  }
}

bool FieldReader::SkipGroup(uint32_t field) {
  absl::InlinedVector<uint32_t, 4> open = {field};
  while (!open.empty()) {
    uint32_t tag;
    if (!ReadTag(&tag)) return false;
    switch (tag & 7) {
      case kStartGroup:
        if (open.size() >= kMaxDepth) return false;
        open.push_back(tag >> 3);
        break;
      case kEndGroup:
        if (tag >> 3 != open.back()) return false;
        open.pop_back();
        break;
      case kBytes:
        if (!ReadValue(tag) || !in_->Skip(size_)) return false;
        break;
      default:
        if (!ReadValue(tag)) return false;
    }
  }
  return true;
}

void FieldReader::ReadString(std::string* text) {
  if (!in_->ReadString(size_, text) || !IsUtf8(*text)) ok_ = false;
}

void FieldReader::ReadMessage(google::protobuf::MessageLite* message) {
  if (size_ == 0) return;
  if (size_ <= kSmallMessage) {
    uint8_t text[kSmallMessage];
    ok_ &= in_->Read(text, size_);
    google::protobuf::io::CodedInputStream stream(text, static_cast<int>(size_));
    ok_ = ok_ && message->MergeFromCodedStream(&stream) && stream.ConsumedEntireMessage();
    return;
  }
  net::Bytes bytes;
  if (size_ > kMaxLength || !in_->ReadBytes(size_, &bytes)) {
    ok_ = false;
    return;
  }
  net::BytesInputStream stream(bytes);
  ok_ &= message->MergeFromBoundedZeroCopyStream(&stream, static_cast<int>(size_));
}

void FieldReader::Skip() {
  if ((tag_ & 7) == kBytes && !in_->Skip(size_)) ok_ = false;
}

Status FieldReader::End(string_view type) const {
  if (ok_) return absl::OkStatus();
  return InvalidArgument("the bytes of a ", type, " are malformed, ", in_->remaining(), " bytes before their end");
}

}  // namespace millrace
