// Vectors of eight floats, for loops that the compiler does not vectorise. Uses the vector types of GCC and clang,
// which are split in two on machines without AVX.
#pragma once

#include <cstdint>
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace millrace {

inline constexpr int64_t kVec = 8;
using Vec = float __attribute__((vector_size(32)));
// Only a typedef may lower an alignment: clang takes no notice of it in an alias.
typedef float UnalignedVec __attribute__((vector_size(32), aligned(4), may_alias));

inline Vec Load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
inline void Store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
inline Vec Broadcast(float x) { return Vec{x, x, x, x, x, x, x, x}; }

// a * b + c, with a single rounding if the machine has FMA.
inline Vec MulAdd(Vec a, Vec b, Vec c) {
#if defined(__FMA__)
  return reinterpret_cast<Vec>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
  return a * b + c;
#endif
}

// a < b ? a : b and a > b ? a : b, which are b if either is NaN.
inline Vec Smaller(Vec a, Vec b) {
#if defined(__AVX__)
  return reinterpret_cast<Vec>(_mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#else
  return a < b ? a : b;
#endif
}
inline Vec Larger(Vec a, Vec b) {
#if defined(__AVX__)
  return reinterpret_cast<Vec>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#else
  return a > b ? a : b;
#endif
}

// to[j][i] = from[i][j] for a block of 8 x 8; strides in floats.
inline void Transpose8x8(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
#if defined(__AVX__)
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * from_stride);
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
#else
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
#endif
}

}  // namespace millrace
