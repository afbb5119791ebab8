// Protobuf's wire format, walked in place: for messages that are too many to build objects of.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace millrace {

// Reads fields one after the other. Every reader returns false, and reads nothing further that is of use,
// when the bytes end or make no sense.
class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const { return at_ == end_; }

  bool Varint(uint64_t* value) {
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) {
      *value = static_cast<unsigned char>(*at_++);
      return true;
    }
    uint64_t result = 0;
    for (int shift = 0; shift < 70 && at_ != end_; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at_++);
      if (shift < 64) result |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        *value = result;
        return true;
      }
    }
    return false;
  }
  // A field's number and kind, as one: number * 8 + kind.
  bool Tag(uint32_t* tag) {
    uint64_t value;
    if (!Varint(&value) || value > UINT32_MAX || value < 8) return false;
    *tag = static_cast<uint32_t>(value);
    return true;
  }
  // The body of a string or message.
  bool Delimited(absl::string_view* body) {
    uint64_t size;
    if (!Varint(&size) || size > static_cast<uint64_t>(end_ - at_)) return false;
    *body = absl::string_view(at_, static_cast<size_t>(size));
    at_ += size;
    return true;
  }
  bool Fixed(size_t size, const char** bytes) {
    if (static_cast<size_t>(end_ - at_) < size) return false;
    *bytes = at_;
    at_ += size;
    return true;
  }
  // Passes over the field whose tag was just read. Groups, which nothing here ever had, are refused.
  bool Skip(uint32_t tag) {
    uint64_t number;
    absl::string_view body;
    const char* bytes;
    switch (tag & 7) {
      case 0: return Varint(&number);
      case 1: return Fixed(8, &bytes);
      case 2: return Delimited(&body);
      case 5: return Fixed(4, &bytes);
      default: return false;
    }
  }

 private:
  const char* at_;
  const char* end_;
};

// Tags of fields.
constexpr uint32_t VarintTag(uint32_t field) { return field << 3; }
constexpr uint32_t DelimitedTag(uint32_t field) { return field << 3 | 2; }
constexpr uint32_t Fixed32Tag(uint32_t field) { return field << 3 | 5; }

}  // namespace millrace
