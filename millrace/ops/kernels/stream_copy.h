// Non-temporal copies that bypass the cache, for large results that are not read soon.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace {

// From this size on a result would not stay in the cache; smaller ones may still be there for the next op.
inline constexpr size_t kStreamBytes = size_t{24} << 20;

// Avoids reading the destination's cache lines. Call StreamFence before another thread reads the result.
inline void StreamCopy(const void* from, void* to, size_t bytes) {
  const char* x = static_cast<const char*>(from);
  char* y = static_cast<char*>(to);
#ifdef __AVX__
  const size_t head = (32 - (reinterpret_cast<uintptr_t>(y) & 31)) & 31;
  if (bytes >= head + 32) {
    std::memcpy(y, x, head);
    x += head, y += head, bytes -= head;
    for (; bytes >= 32; x += 32, y += 32, bytes -= 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(y), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
    }
  }
#endif
  std::memcpy(y, x, bytes);
}

// y = x * scale with non-temporal stores.
inline void StreamScaled(const float* x, float scale, float* y, int64_t n) {
  int64_t i = 0;
#ifdef __AVX__
  for (; i < n && (reinterpret_cast<uintptr_t>(y + i) & 31) != 0; ++i) y[i] = x[i] * scale;
  for (; i + 8 <= n; i += 8) _mm256_stream_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale)));
#endif
  for (; i < n; ++i) y[i] = x[i] * scale;
}

inline void StreamFence() { _mm_sfence(); }

}  // namespace millrace
