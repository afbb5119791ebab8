// Integer encodings: varint, fixed-size little-endian, and the order-preserving encoding of checkpoint keys.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace millrace {

inline void PutFixed32(std::string* out, uint32_t value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out->append(bytes, sizeof(value));
}
inline void PutFixed64(std::string* out, uint64_t value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out->append(bytes, sizeof(value));
}
// `bytes` must have at least four (eight) bytes.
inline uint32_t GetFixed32(const char* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
inline uint64_t GetFixed64(const char* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Seven bits per byte, lowest first; the high bit means that more bytes follow.
void PutVarint(std::string* out, uint64_t value);
// Consumes a varint from the front of `in`. Returns false if it is truncated or has more than 64 bits; `in` is then
// unspecified.
[[nodiscard]] bool TakeVarint(absl::string_view* in, uint64_t* value);

// Order-preserving encodings: the bytes compare as the values do, also when several are concatenated.
void PutOrderedNumber(std::string* out, uint64_t value);
void PutOrderedSigned(std::string* out, int64_t value);
void PutOrderedString(std::string* out, absl::string_view value);

}  // namespace millrace
