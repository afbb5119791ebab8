// Vectors of sixteen floats, for loops that are compiled twice: once with the vectors of vec.h for every machine, and
// once with these for machines with AVX-512 (HasWideVectors), whichever the rest of the program is compiled for.
//
//   #define MILLRACE_LOOPS "loops.h"
//   #include "millrace/ops/kernels/both_widths.h"
//
// Such loops must not contain lambdas, which do not get the target, and must be called through functions that pass no
// vectors.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__AVX2__) && defined(__FMA__)
#define MILLRACE_WIDE_VECTORS 1
#include <immintrin.h>

#if defined(__clang__)
// One literal, which a _Pragma needs: avx512dq implies avx512f.
#define MILLRACE_BEGIN_WIDE \
  _Pragma("clang attribute push(__attribute__((target(\"avx512dq,avx512bw,avx512vl\"))), apply_to=function)")
#define MILLRACE_END_WIDE _Pragma("clang attribute pop")
#else
#define MILLRACE_BEGIN_WIDE _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512dq,avx512bw,avx512vl\")")
#define MILLRACE_END_WIDE _Pragma("GCC pop_options")
#endif
#endif

namespace millrace {

// True if this machine runs code that was compiled between MILLRACE_BEGIN_WIDE and MILLRACE_END_WIDE.
inline bool HasWideVectors() {
#if defined(MILLRACE_WIDE_VECTORS)
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return has;
#else
  return false;
#endif
}

}  // namespace millrace

#if defined(MILLRACE_WIDE_VECTORS)
MILLRACE_BEGIN_WIDE
namespace millrace::wide_vec {

inline constexpr int64_t kVec = 16;
using Vec = __m512;

inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec Broadcast(float x) { return _mm512_set1_ps(x); }
inline Vec MulAdd(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

}  // namespace millrace::wide_vec
MILLRACE_END_WIDE
#endif
