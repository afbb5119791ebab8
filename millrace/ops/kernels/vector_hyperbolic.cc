// e^x - 1 and the hyperbolic functions over arrays: branch-free polynomials, which the compiler vectorises. Accurate to
// about 2 ulp.
#include <cmath>

#include "millrace/ops/kernels/float_bits.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace::vector {
namespace {

// e^x = 2^power * (1 + rest), for |x| <= 90.
struct ReducedExp {
  int32_t power;
  float rest;
};
inline ReducedExp ReduceExp(float x) {
  // Adding this constant rounds to the nearest integer.
  constexpr float kRound = 12582912.0f;
  const float shifted = MulAdd(x, 1.44269504088896341f, kRound), turns = shifted - kRound;
  const float r = MulAdd(turns, 2.12194440e-4f, MulAdd(turns, -0.693359375f, x));
  const float p = Polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                             1.6666665459e-1f, 5.0000001201e-1f);
  return {std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound), MulAdd(p, r * r, r)};
}

inline float Expm1Of(float x) {
  const float low = x < -25.0f ? -25.0f : x, capped = low > 89.0f ? 89.0f : low;
  const ReducedExp e = ReduceExp(capped);
  // In halves, because 2^128 would overflow although the sum does not.
  const float half = PowerOfTwo(e.power - 1), y = MulAdd(e.rest, half, half - 0.5f) * 2.0f;
  return std::fabs(x) < 1e-8f ? x : y;
}

// e^a / 2 and e^-a / 2 (unless negligible compared to the former), for a >= 0.
struct HalfExps {
  float grown, shrunk;
};
inline HalfExps HalfExpsOf(float a) {
  // e^a / 2 may be finite although e^a overflows: e^a / 2 = e^(a - 1.375) * (e^1.375 / 2), where the difference is
  // exact.
  const bool large = a > 88.0f;
  const float capped = a > 90.0f ? 90.0f : a;
  const ReducedExp r = ReduceExp(large ? capped - 1.375f : capped);
  const float e = (1.0f + r.rest) * PowerOfTwo(r.power);
  return {e * (large ? 1.97753836f : 0.5f), 0.5f / e};
}

inline float SinhOf(float x) {
  const HalfExps e = HalfExpsOf(std::fabs(x));
  const float z = x * x;
  const float near = MulAdd(Polynomial(z, 2.7557319e-6f, 1.9841270e-4f, 8.3333333e-3f, 1.66666667e-1f), z * x, x);
  return std::fabs(x) < 1.0f ? near : WithSign(e.grown - e.shrunk, x);
}

inline float CoshOf(float x) {
  const HalfExps e = HalfExpsOf(std::fabs(x));
  return e.grown + e.shrunk;
}

// For |x| < 1/2.
inline float AtanhNear(float x) {
  const float z = x * x;
  return MulAdd(Polynomial(z, 1.771962964e-1f, 5.09856387e-2f, 1.183395708e-1f, 1.422148746e-1f, 2.000258765e-1f,
                           3.333329884e-1f),
                z * x, x);
}

}  // namespace

void Expm1(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Expm1Of(x[i]);
}

void Sinh(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = SinhOf(x[i]);
}

void Cosh(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = CoshOf(x[i]);
}

// log(x + sqrt(x^2 - 1)), from x - 1, which is exact near 1.
void Acosh(const float* x, float* y, int64_t n) {
  constexpr float kHuge = 1e18f, kLog2 = 0.693147180559945f;
  float logs[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t m = n - begin < kPiece ? n - begin : kPiece;
    const float* const from = x + begin;
    float* const to = y + begin;
    int inside = 0;
    for (int64_t i = 0; i < m; ++i) inside |= from[i] >= 1.0f;
    if (inside != 0) {
      for (int64_t i = 0; i < m; ++i) {
        const float t = from[i] - 1.0f;
        logs[i] = t > kHuge ? t : t + std::sqrt(t * (t + 2.0f));
      }
      Log1p(logs, logs, m);
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < m; ++i) {
      const float v = from[i], number = v > kHuge ? logs[i] + kLog2 : logs[i];
      to[i] = v >= 1.0f ? number : __builtin_nanf("");
    }
  }
}

void Atanh(const float* x, float* y, int64_t n) {
  float logs[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t m = n - begin < kPiece ? n - begin : kPiece;
    const float* const from = x + begin;
    float* const to = y + begin;
    int far = 0;
    for (int64_t i = 0; i < m; ++i) far |= (std::fabs(from[i]) >= 0.5f) & (std::fabs(from[i]) <= 1.0f);
    if (far != 0) {
      for (int64_t i = 0; i < m; ++i) logs[i] = (1.0f + std::fabs(from[i])) / (1.0f - std::fabs(from[i]));
      Log(logs, logs, m);
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < m; ++i) {
      const float v = from[i], a = std::fabs(v);
      const float number = a < 0.5f ? AtanhNear(v) : WithSign(0.5f * logs[i], v);
      to[i] = a <= 1.0f ? number : __builtin_nanf("");
    }
  }
}

}  // namespace millrace::vector
