// The complementary error function over arrays.
#include <cmath>
#include <cstring>

#include "millrace/ops/kernels/float_bits.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace::vector {
namespace {

// For |v| < 1.
inline float ErfcNear(float v) {
  const float z = v * v;
  return 1.0f - v * ((((((7.853861353153693e-5f * z - 8.010193625184903e-4f) * z + 5.188327685732524e-3f) * z -
                        2.685381193529856e-2f) *
                           z +
                       1.128358514861418e-1f) *
                          z -
                      3.761262582423300e-1f) *
                         z +
                     1.128379165726710e+0f);
}

inline float Capped(float v) {
  const float a = std::fabs(v);
  return a > 11.0f ? 11.0f : a;
}

// For 1 <= |v|, with e = e^-(a^2) for a = Capped(v).
inline float ErfcFar(float v, float e) {
  const float a = Capped(v);
  // The rounding error of a * a, which matters because e^-(a^2) is steep.
  const float high = static_cast<float>(static_cast<int32_t>(a * 256.0f)) * 0.00390625f, low = a - high;
  const float lost = ((high * high - a * a) + 2.0f * high * low) + low * low;
  const float q = 1.0f / (a < 1.0f ? 1.0f : a), w = q * q;
  const float below_2 = (((((((2.326819970068386e-2f * w - 1.387039388740657e-1f) * w + 3.687424674597105e-1f) * w -
                             5.824733027278666e-1f) *
                                w +
                            6.210004621745983e-1f) *
                               w -
                           4.944515323274145e-1f) *
                              w +
                          3.404879937665872e-1f) *
                             w -
                         2.741127028184656e-1f) *
                            w +
                        5.638259427386472e-1f;
  const float above_2 = ((((((-1.047766399936249e+1f * w + 1.297719955372516e+1f) * w - 7.495518717768503e+0f) * w +
                            2.921019019210786e+0f) *
                               w -
                           1.015265279202700e+0f) *
                              w +
                          4.218463358204948e-1f) *
                             w -
                         2.820767439740514e-1f) *
                            w +
                        5.641895067754075e-1f;
  const float tail = (e - e * lost) * q * (a < 2.0f ? below_2 : above_2);
  return v < 0 ? 2.0f - tail : tail;
}

}  // namespace

void Erfc(const float* x, float* y, int64_t n) {
  float e[kPiece], result[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t m = n - begin < kPiece ? n - begin : kPiece;
    const float* const from = x + begin;
    float* const to = y + begin;
    int far = 0;
    for (int64_t i = 0; i < m; ++i) far |= !(std::fabs(from[i]) < 1.0f);
    if (far == 0) {
#pragma GCC ivdep
      for (int64_t i = 0; i < m; ++i) to[i] = ErfcNear(from[i]);
      continue;
    }
    for (int64_t i = 0; i < m; ++i) e[i] = -Capped(from[i]) * Capped(from[i]);
    Exp(e, e, m);
    for (int64_t i = 0; i < m; ++i) {
      const float v = from[i], number = std::fabs(v) < 1.0f ? ErfcNear(v) : ErfcFar(v, e[i]);
      result[i] = v == v ? number : v;
    }
    std::memcpy(to, result, m * sizeof(float));
  }
}

}  // namespace millrace::vector
