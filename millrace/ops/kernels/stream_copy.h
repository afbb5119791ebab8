// Copies past the cache: for results that are larger than it, and that nobody reads soon.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace {

// Results from here on do not stay in the cache; smaller ones may, for the next op to find.
inline constexpr size_t kStreamBytes = size_t{24} << 20;

// Saves the reading of what is about to be overwritten. Call StreamFence before another thread looks.
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

inline void StreamFence() { _mm_sfence(); }

}  // namespace millrace
