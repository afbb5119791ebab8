#include "millrace/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace millrace {
namespace {

// Polynomials over GF(2) modulo Castagnoli's, in reflected bit order: the highest bit is the coefficient of x^0.
constexpr uint32_t kCastagnoli = 0x82f63b78;
constexpr uint32_t kOne = uint32_t{1} << 31;

constexpr uint32_t TimesX(uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? kCastagnoli : 0); }

constexpr uint32_t Product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1, b = TimesX(b)) {
    if ((a & bit) != 0) sum ^= b;
  }
  return sum;
}

// x^(8 * 2^i): appending 2^i bytes multiplies a CRC by this.
constexpr std::array<uint32_t, 64> kBytePowers = [] {
  std::array<uint32_t, 64> powers{};
  uint32_t power = kOne;
  for (int i = 0; i < 8; ++i) power = TimesX(power);
  for (uint32_t& p : powers) {
    p = power;
    power = Product(power, power);
  }
  return powers;
}();

}  // namespace

uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_size) {
  for (int i = 0; second_size != 0; ++i, second_size >>= 1) {
    if ((second_size & 1) != 0) first = Product(first, kBytePowers[i]);
  }
  return first ^ second;
}

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data) {
  constexpr size_t kMaxPiece = size_t{1} << 30;  // the library takes an int
  crc = ~crc;
  while (!data.empty()) {
    const absl::string_view piece = data.substr(0, kMaxPiece);
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(piece.data()));
    crc = crc32_iscsi(bytes, static_cast<int>(piece.size()), crc);
    data.remove_prefix(piece.size());
  }
  return ~crc;
}

}  // namespace millrace
