#include "millrace/io/coding.h"

#include <bit>

namespace millrace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read as they are");

void PutOrderedNumber(std::string* out, uint64_t value) {
  const int bytes = (64 - std::countl_zero(value) + 7) / 8;
  out->push_back(static_cast<char>(bytes));
  for (int i = bytes - 1; i >= 0; --i) out->push_back(static_cast<char>(value >> (8 * i)));
}

void PutOrderedSigned(std::string* out, int64_t value) {
  // A negative number is encoded as the complement of its complement's encoding. Otherwise an encoding of n bytes
  // begins with n one bits and a zero bit, followed by the remaining 7n - 1 bits, highest first.
  const uint8_t flip = value < 0 ? 0xff : 0;
  const auto magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
  const int bits = 64 - std::countl_zero(magnitude);
  const int n = bits / 7 + 1;
  for (int i = n - 1; i >= 0; --i) {
    uint8_t byte = i < 8 ? static_cast<uint8_t>(magnitude >> (8 * i)) : 0;
    const int ones = n - 8 * (n - 1 - i);  // marker bits from this byte on
    if (ones >= 8) {
      byte = 0xff;
    } else if (ones > 0) {
      byte |= static_cast<uint8_t>(0xff << (8 - ones));
    }
    out->push_back(static_cast<char>(byte ^ flip));
  }
}

void PutOrderedString(std::string* out, absl::string_view value) {
  for (const char c : value) {
    out->push_back(c);
    if (c == '\0') out->push_back('\xff');
    if (c == '\xff') out->push_back('\0');
  }
  out->append("\0\1", 2);
}

}  // namespace millrace
