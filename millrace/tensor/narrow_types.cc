#include "millrace/tensor/narrow_types.h"

#include <array>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

struct Float8Format {
  int mantissa = 0;
  int bias = 0;
  // The bits of the largest finite value, and of what a larger one becomes.
  int largest = 0;
  int overflow = 0;
  int nan = 0;
  // No negative zero: its bits mean NaN.
  bool unsigned_zero = false;
};

Float8Format FormatOf(DType t) {
  if (t == kFloat8E5M2) return {.mantissa = 2, .bias = 15, .largest = 0x7b, .overflow = 0x7c, .nan = 0x7e};
  if (t == kFloat8E4M3FN) return {.mantissa = 3, .bias = 7, .largest = 0x7e, .overflow = 0x7f, .nan = 0x7f};
  Float8Format format{.mantissa = 3, .bias = 8, .largest = 0x7f, .overflow = 0x80, .nan = 0x80, .unsigned_zero = true};
  if (t == kFloat8E4M3B11FNUZ) format.bias = 11;
  if (t == kFloat8E5M2FNUZ) format.mantissa = 2, format.bias = 16;
  return format;
}

float Decode(const Float8Format& f, int bits) {
  if (f.unsigned_zero && bits == f.nan) return std::numeric_limits<float>::quiet_NaN();
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  const int magnitude = bits & 0x7f;
  if (magnitude > f.largest) {
    return magnitude == f.overflow && f.overflow != f.nan ? sign * std::numeric_limits<float>::infinity()
                                                          : std::numeric_limits<float>::quiet_NaN();
  }
  const int exponent = magnitude >> f.mantissa, fraction = magnitude & ((1 << f.mantissa) - 1);
  // A subnormal number has the least exponent and no leading one.
  const int significand = exponent == 0 ? fraction : fraction + (1 << f.mantissa);
  return sign * std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - f.bias - f.mantissa);
}

uint8_t Encode(const Float8Format& f, float x) {
  const int sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return static_cast<uint8_t>(f.nan | sign);
  const float magnitude = std::fabs(x);
  int bits = f.largest + 1;
  if (magnitude == 0) {
    bits = 0;
  } else if (std::isfinite(x) && std::ilogb(magnitude) <= 16) {
    const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias);
    // The significand's leading one counts as one in the exponent's field; rounding up may carry into it.
    const auto significand = static_cast<int>(std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent)));
    bits = ((exponent + f.bias - 1) << f.mantissa) + significand;
  }
  if (bits > f.largest) return static_cast<uint8_t>(f.overflow | sign);
  if (bits == 0 && f.unsigned_zero) return 0;
  return static_cast<uint8_t>(bits | sign);
}

std::array<float, 256> DecodedTable(DType t) {
  std::array<float, 256> table{};
  const Float8Format format = FormatOf(t);
  for (int bits = 0; bits < 256; ++bits) table[bits] = Decode(format, bits);
  return table;
}

int BitsOf(DType t) { return t == kInt4 || t == kUInt4 ? 4 : 2; }

}  // namespace

DType WideType(DType t) {
  if (IsFloat8(t)) return DType::kFloat;
  if (t == kInt4 || t == kInt2) return DType::kInt8;
  if (t == kUInt4 || t == kUInt2) return DType::kUInt8;
  return t;
}

void WidenElements(DType t, const uint8_t* from, void* to, int64_t n) {
  if (IsFloat8(t)) {
    const std::array<float, 256> table = DecodedTable(t);
    for (int64_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = table[from[i]];
    return;
  }
  NarrowElements(t, from, static_cast<uint8_t*>(to), n);
}

void NarrowElements(DType t, const void* from, uint8_t* to, int64_t n) {
  if (IsFloat8(t)) {
    const Float8Format format = FormatOf(t);
    for (int64_t i = 0; i < n; ++i) to[i] = Encode(format, static_cast<const float*>(from)[i]);
    return;
  }
  // In memory an element is an extended byte.
  const int unused = 8 - BitsOf(t);
  const bool is_signed = WideType(t) == DType::kInt8;
  for (int64_t i = 0; i < n; ++i) {
    const auto high = static_cast<uint8_t>(static_cast<const uint8_t*>(from)[i] << unused);
    to[i] = is_signed ? static_cast<uint8_t>(static_cast<int8_t>(high) >> unused) : high >> unused;
  }
}

}  // namespace millrace
