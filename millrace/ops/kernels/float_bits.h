// Branch-free scalar functions for the loops of vector_*.cc, which the compiler vectorises.
#pragma once

#include <bit>
#include <cstdint>

namespace millrace::vector {

// Elements per block in loops with several passes.
inline constexpr int64_t kPiece = 128;

inline float WithSign(float x, float sign) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0x7fffffffu) |
                              (std::bit_cast<uint32_t>(sign) & 0x80000000u));
}

// 2^n for n in [-126, 127]; infinity for 128.
inline float PowerOfTwo(int32_t n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

// a * b + c, with a single rounding if the machine has FMA.
inline float MulAdd(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// c[0] x^n + c[1] x^(n - 1) + ... + c[n].
template <typename... Rest>
inline float Polynomial(float x, float first, Rest... rest) {
  float sum = first;
  ((sum = MulAdd(sum, x, rest)), ...);
  return sum;
}

}  // namespace millrace::vector
