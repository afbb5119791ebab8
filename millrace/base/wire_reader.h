// Reads protobuf's wire format field by field, in place: for messages that carry tensors, and for messages that are too
// numerous to be parsed into objects.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "millrace/base/varint.h"

namespace millrace {

// The tags of fields that hold an integer, four bytes, or a string, message or packed list.
constexpr uint32_t VarintTag(uint32_t field) { return field << 3; }
constexpr uint32_t Fixed32Tag(uint32_t field) { return field << 3 | 5; }
constexpr uint32_t BytesTag(uint32_t field) { return field << 3 | 2; }

// Reads contiguous bytes from front to back. The bytes must outlive it.
class FlatSource {
 public:
  explicit FlatSource(absl::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  size_t remaining() const { return static_cast<size_t>(end_ - at_); }
  // These return false, and leave the position undefined, if too few bytes are left.
  [[nodiscard]] bool ReadVarint(uint64_t* value) {
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) {
      *value = static_cast<unsigned char>(*at_++);
      return true;
    }
    const auto next = [this]() -> int { return at_ != end_ ? static_cast<unsigned char>(*at_++) : -1; };
    return DecodeVarint<ExcessBits::kDrop>(next, value);
  }
  [[nodiscard]] bool Read(void* to, size_t size) {
    if (size > remaining()) return false;
    std::memcpy(to, at_, size);
    at_ += size;
    return true;
  }
  [[nodiscard]] bool Skip(size_t size) {
    if (size > remaining()) return false;
    at_ += size;
    return true;
  }
  // Takes the body of the next field if that has this tag, of one byte, and a length of one byte, as most have in small
  // messages. Otherwise returns false, and the position stays.
  [[nodiscard]] bool TakeShortField(uint32_t tag, absl::string_view* body) {
    if (remaining() < 2 || static_cast<unsigned char>(at_[0]) != tag) return false;
    const size_t size = static_cast<unsigned char>(at_[1]);
    if (size > 127 || size > remaining() - 2) return false;
    *body = absl::string_view(at_ + 2, size);
    at_ += 2 + size;
    return true;
  }
  // The next `size` bytes, which must exist.
  absl::string_view Take(size_t size) {
    const absl::string_view bytes(at_, size);
    at_ += size;
    return bytes;
  }

 private:
  const char* at_;
  const char* end_;
};

// Reads the fields of a message from a source: FlatSource, or net::BytesReader for bytes in several pieces:
//
//   FlatSource bytes(text);
//   WireReader in(&bytes);
//   while (in.Next()) {
//     switch (in.tag()) {
//       case BytesTag(1): name = bytes.Take(in.size()); break;
//       default: in.Skip();
//     }
//   }
//   return in.ok();
//
// Accepts what protobuf's own parser accepts, and nothing else: fields in any order, unknown fields and groups, known
// fields of another wire type. An error is sticky: Next returns false from then on.
template <typename Source>
class WireReader {
 public:
  // Protobuf's own limit for a length.
  static constexpr size_t kMaxLength = std::numeric_limits<int>::max() - 16;

  // The message is everything that is left in `in`, which must outlive this. Fields longer than `longest` are
  // malformed.
  explicit WireReader(Source* in, size_t longest = kMaxLength) : WireReader(in, longest, 0) {}

  // Advances to the next field. Read the bytes of a field with a BytesTag from the source, or skip them, before the
  // next call; numbers, and groups, which nothing here uses, have been consumed already.
  bool Next() {
    if (!ok_ || in_->remaining() == end_) return false;
    ok_ = ReadTag(&tag_) && (tag_ & 7) != kEndGroup && ReadValue(tag_);
    return ok_;
  }
  uint32_t tag() const { return tag_; }
  uint32_t field() const { return tag_ >> 3; }
  uint64_t number() const { return number_; }  // the value of a VarintTag field, or the bits of a Fixed32Tag field
  size_t size() const { return size_; }        // the size of a BytesTag field; the source has that many bytes

  void Skip() {
    if ((tag_ & 7) == kBytes && !in_->Skip(size_)) ok_ = false;
  }
  bool ok() const { return ok_; }
  void Fail() { ok_ = false; }

 protected:
  enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

  // The message ends when `in` has `end` bytes left.
  WireReader(Source* in, size_t longest, size_t end) : in_(in), longest_(longest), end_(end) {}

  Source* const in_;
  const size_t longest_;
  bool ok_ = true;

 private:
  // Protobuf's own limit for nesting.
  static constexpr size_t kMaxDepth = 100;

  bool ReadVarint(uint64_t* value) { return in_->ReadVarint(value) && in_->remaining() >= end_; }

  bool ReadTag(uint32_t* tag) {
    const size_t before = in_->remaining();
    uint64_t value;
    // A tag takes five bytes at most; protobuf drops what the fifth has beyond 32 bits.
    if (!ReadVarint(&value) || before - in_->remaining() > 5) return false;
    *tag = static_cast<uint32_t>(value);
    return *tag >> 3 != 0;
  }

  bool ReadFixed(size_t size) {
    number_ = 0;
    return size <= in_->remaining() - end_ && in_->Read(&number_, size);
  }

  // Reads what follows `tag`; sets number_ and size_.
  bool ReadValue(uint32_t tag) {
    switch (tag & 7) {
      case kVarint:
        return ReadVarint(&number_);
      case kFixed64:
        return ReadFixed(8);
      case kFixed32:
        return ReadFixed(4);
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

  bool SkipGroup(uint32_t field) {
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

  const size_t end_;  // the number of bytes left in in_ at the end of the message
  uint32_t tag_ = 0;
  uint64_t number_ = 0;
  size_t size_ = 0;
};

}  // namespace millrace
