// 16-bit floating-point types: stored in two bytes, with arithmetic in float.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace millrace {

namespace half_internal {

inline uint32_t Bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
inline float FromBits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

// Round to nearest, ties to even, for both formats.
inline uint16_t ToBFloat16(float f) {
  const uint32_t u = Bits(f);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((u >> 16) | 0x40);  // NaN stays NaN
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

inline float HalfToFloat(uint16_t h) {
#ifdef __F16C__
  return __builtin_ia32_vcvtph2ps(
      __extension__(__attribute__((__vector_size__(16))) short){static_cast<short>(h), 0, 0, 0, 0, 0, 0, 0})[0];
#else
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  uint32_t exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ff;
  if (exponent == 0x1f) return FromBits(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    if (mantissa == 0) return FromBits(sign);
    exponent = 113;
    while ((mantissa & 0x400) == 0) {
      mantissa <<= 1;
      --exponent;
    }
    return FromBits(sign | (exponent << 23) | ((mantissa & 0x3ff) << 13));
  }
  return FromBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
#endif
}

inline uint16_t FloatToHalf(float f) {
#ifdef __F16C__
  return static_cast<uint16_t>(
      __builtin_ia32_vcvtps2ph(__extension__(__attribute__((__vector_size__(16))) float){f, 0, 0, 0}, 0)[0]);
#else
  const uint32_t u = Bits(f), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // subnormal: float addition does the rounding
    const float r = FromBits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (Bits(r) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((magnitude + 0xc8000fff + ((magnitude >> 13) & 1)) >> 13));
#endif
}

}  // namespace half_internal

#define MR_HALF_TYPE(name, to, from)                                                  \
  struct name {                                                                       \
    uint16_t bits = 0;                                                                \
    name() = default;                                                                 \
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>       \
    explicit name(T v) : bits(half_internal::to(static_cast<float>(v))) {}            \
    operator float() const { return half_internal::from(bits); } /* NOLINT: widens */ \
    static name FromRaw(uint16_t raw) {                                               \
      name v;                                                                         \
      v.bits = raw;                                                                   \
      return v;                                                                       \
    }                                                                                 \
    name& operator+=(name o) { return *this = name(float(*this) + float(o)); }        \
    name& operator-=(name o) { return *this = name(float(*this) - float(o)); }        \
    name& operator*=(name o) { return *this = name(float(*this) * float(o)); }        \
    name& operator/=(name o) { return *this = name(float(*this) / float(o)); }        \
    friend name operator+(name a, name b) { return name(float(a) + float(b)); }       \
    friend name operator-(name a, name b) { return name(float(a) - float(b)); }       \
    friend name operator*(name a, name b) { return name(float(a) * float(b)); }       \
    friend name operator/(name a, name b) { return name(float(a) / float(b)); }       \
    friend name operator-(name a) { return FromRaw(a.bits ^ 0x8000); }                \
    friend bool operator==(name a, name b) { return float(a) == float(b); }           \
    friend bool operator!=(name a, name b) { return float(a) != float(b); }           \
    friend bool operator<(name a, name b) { return float(a) < float(b); }             \
    friend bool operator>(name a, name b) { return float(a) > float(b); }             \
    friend bool operator<=(name a, name b) { return float(a) <= float(b); }           \
    friend bool operator>=(name a, name b) { return float(a) >= float(b); }           \
  }
namespace half_internal {
inline float FromBFloat16(uint16_t b) { return FromBits(static_cast<uint32_t>(b) << 16); }
}  // namespace half_internal

MR_HALF_TYPE(half, FloatToHalf, HalfToFloat);
MR_HALF_TYPE(bfloat16, ToBFloat16, FromBFloat16);
#undef MR_HALF_TYPE

}  // namespace millrace

namespace std {
template <>
struct numeric_limits<millrace::half> : numeric_limits<float> {
  using H = millrace::half;
  static H min() { return H::FromRaw(0x0400); }
  static H lowest() { return H::FromRaw(0xfbff); }
  static H max() { return H::FromRaw(0x7bff); }
  static H epsilon() { return H::FromRaw(0x1400); }
  static H infinity() { return H::FromRaw(0x7c00); }
  static H quiet_NaN() { return H::FromRaw(0x7e00); }
};
template <>
struct numeric_limits<millrace::bfloat16> : numeric_limits<float> {
  using B = millrace::bfloat16;
  static B min() { return B::FromRaw(0x0080); }
  static B lowest() { return B::FromRaw(0xff7f); }
  static B max() { return B::FromRaw(0x7f7f); }
  static B epsilon() { return B::FromRaw(0x3c00); }
  static B infinity() { return B::FromRaw(0x7f80); }
  static B quiet_NaN() { return B::FromRaw(0x7fc0); }
};
}  // namespace std
