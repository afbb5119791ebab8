// Trigonometric functions over arrays: branch-free polynomials, which the compiler vectorises. Accurate to about 2 ulp.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "millrace/ops/kernels/float_bits.h"
#include "millrace/ops/kernels/vector_math.h"

namespace millrace::vector {
namespace {

constexpr float kPi = 3.14159265358979f, kHalfPi = 1.57079632679490f;

// Above this, reducing x modulo pi / 2 loses too much precision.
constexpr float kMostForTurns = 8000;

// sin(x + quarters * pi / 2).
inline float SinOf(float x, int32_t quarters) {
  // Adding this constant rounds to the nearest integer.
  constexpr float kRound = 12582912.0f;
  const float turns = (x * 0.636619772367581f + kRound) - kRound;
  const int32_t quadrant = static_cast<int32_t>(turns) + quarters;
  const float r = ((x - turns * 1.5703125f) - turns * 4.837512969970703125e-4f) - turns * 7.549789948768648e-8f;
  const float z = r * r;
  const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  const float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  const float y = (quadrant & 1) != 0 ? cosine : r == 0 ? x : sine;  // preserves -0
  return (quadrant & 2) != 0 ? -y : y;
}

template <int32_t kQuarters>
void SinLoop(const float* x, float* y, int64_t n) {
  float exact[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t m = n - begin < kPiece ? n - begin : kPiece;
    const float* const from = x + begin;
    int far = 0;
    for (int64_t i = 0; i < m; ++i) far |= !(std::fabs(from[i]) <= kMostForTurns);
    if (far != 0) {
      for (int64_t i = 0; i < m; ++i) {
        exact[i] = !(std::fabs(from[i]) <= kMostForTurns) ? (kQuarters == 0 ? std::sin(from[i]) : std::cos(from[i]))
                                                          : SinOf(from[i], kQuarters);
      }
      std::memcpy(y + begin, exact, m * sizeof(float));
      continue;
    }
    float* const to = y + begin;
#pragma GCC ivdep
    for (int64_t i = 0; i < m; ++i) to[i] = SinOf(from[i], kQuarters);
  }
}

// atan(over / under) for positive operands.
inline float AtanOf(float over, float under) {
  const bool steep = over > under;
  const float t = (steep ? under : over) / (steep ? over : under), z = t * t;
  const float p = Polynomial(z, 2.9206460e-3f, -1.63677439e-2f, 4.32115632e-2f, -7.55218928e-2f, 1.066599305e-1f,
                             -1.421105241e-1f, 1.999377249e-1f, -3.333315272e-1f);
  const float angle = MulAdd(p, z * t, t);
  return steep ? kHalfPi - angle : angle;
}

// True for operands that Atan2Of does not handle: magnitudes that would overflow or underflow, two zeros, NaN.
inline int IsOdd(float y, float x) {
  const float a = std::fabs(y), b = std::fabs(x);
  const int small_a = !(a > 1e-18f), small_b = !(b > 1e-18f);
  return (small_a & (a != 0)) | (small_b & (b != 0)) | (small_a & small_b) | !(a < 1e18f) | !(b < 1e18f);
}

inline float Atan2Of(float y, float x) {
  const float angle = AtanOf(std::fabs(y), std::fabs(x));
  return WithSign(x < 0 ? kPi - angle : angle, y);
}

// asin of x in [0, 1/2], from x and its square.
inline float AsinOf(float x, float z) {
  return MulAdd(Polynomial(z, 4.2163199048e-2f, 2.4181311049e-2f, 4.5470025998e-2f, 7.4953002686e-2f, 1.6666752422e-1f),
                z * x, x);
}

}  // namespace

void Sin(const float* x, float* y, int64_t n) { SinLoop<0>(x, y, n); }
void Cos(const float* x, float* y, int64_t n) { SinLoop<1>(x, y, n); }

void Atan(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = WithSign(AtanOf(std::fabs(x[i]), 1.0f), x[i]);
}

void Atan2(const float* y, const float* x, float* out, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t m = n - begin < kPiece ? n - begin : kPiece;
    const float *const py = y + begin, *const px = x + begin;
    int odd = 0;
    for (int64_t i = 0; i < m; ++i) odd |= IsOdd(py[i], px[i]);
    float result[kPiece];
    if (odd != 0) {
      for (int64_t i = 0; i < m; ++i)
        result[i] = IsOdd(py[i], px[i]) ? std::atan2(py[i], px[i]) : Atan2Of(py[i], px[i]);
    } else {
      for (int64_t i = 0; i < m; ++i) result[i] = Atan2Of(py[i], px[i]);
    }
    std::memcpy(out + begin, result, m * sizeof(float));
  }
}

void Asin(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]), half = 0.5f * (1.0f - a);
    const bool large = a > 0.5f;
    const float z = large ? half : a * a;
    const float p = AsinOf(large ? std::sqrt(half) : a, z);
    y[i] = WithSign(large ? kHalfPi - (p + p) : p, x[i]);
  }
}

void Acos(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]), half = 0.5f * (1.0f - a);
    const bool large = a > 0.5f;
    const float z = large ? half : a * a;
    const float p = AsinOf(large ? std::sqrt(half) : a, z);
    const float near = p + p;  // for |x| close to 1
    const float far = kHalfPi - WithSign(p, x[i]);
    y[i] = large ? (x[i] < 0 ? kPi - near : near) : far;
  }
}

}  // namespace millrace::vector
