// Numbers in bytes: varints, fixed little-endian ones, and the order-preserving encoding of checkpoint keys.
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
// `bytes` are at least four, or eight.
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

// Seven bits a byte, the lowest first; the highest bit says that more follow.
void PutVarint(std::string* out, uint64_t value);
// Takes one from the front of `in`. False, with `in` anywhere, when it is cut short or has more than 64 bits.
[[nodiscard]] bool TakeVarint(absl::string_view* in, uint64_t* value);

// Encodings whose bytes sort as the values do. They can be put one after the other.
void PutOrderedNumber(std::string* out, uint64_t value);
void PutOrderedSigned(std::string* out, int64_t value);
void PutOrderedString(std::string* out, absl::string_view value);

}  // namespace millrace
