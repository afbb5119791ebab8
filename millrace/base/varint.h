// Varints: seven bits per byte, lowest first; the high bit means that more bytes follow.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace millrace {

inline void PutVarint(std::string* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// What becomes of bits of the tenth byte beyond the 64 of the value: protobuf's parser drops them; elsewhere they are
// damage.
enum class ExcessBits { kDrop, kRefuse };

// Decodes a varint whose bytes `next` returns one by one, -1 if none are left. Returns false if it is truncated or
// longer than ten bytes.
template <ExcessBits excess, typename NextByte>
[[nodiscard]] bool DecodeVarint(NextByte next, uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const int byte = next();
    if (byte < 0 || (excess == ExcessBits::kRefuse && shift == 63 && byte > 1)) return false;
    result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = result;
      return true;
    }
  }
  return false;
}

// Decodes a varint of at most 64 bits from the front of `in` and removes it from there; `in` is unspecified if this
// returns false.
[[nodiscard]] inline bool TakeVarint(absl::string_view* in, uint64_t* value) {
  const auto next = [in]() -> int {
    if (in->empty()) return -1;
    const int byte = static_cast<unsigned char>(in->front());
    in->remove_prefix(1);
    return byte;
  };
  return DecodeVarint<ExcessBits::kRefuse>(next, value);
}

}  // namespace millrace
