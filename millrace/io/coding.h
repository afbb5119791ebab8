// Integer encodings: fixed-size little-endian, varint (base/varint.h), and the order-preserving encoding of checkpoint
// keys.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/varint.h"

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

// Order-preserving encodings: the bytes compare as the values do, also when several are concatenated.
void PutOrderedNumber(std::string* out, uint64_t value);
void PutOrderedSigned(std::string* out, int64_t value);
void PutOrderedString(std::string* out, absl::string_view value);

}  // namespace millrace
