// Trigonometric functions over arrays: polynomials without branches, which the compiler vectorises. Good to about two
// units in the last place.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "millrace/ops/kernels/vector_math.h"

namespace millrace::vector {
namespace {

constexpr float kPi = 3.14159265358979f, kHalfPi = 1.57079632679490f, kQuarterPi = 0.785398163397448f;
constexpr int64_t kPiece = 128;

inline float WithSign(float x, float sign) {
  uint32_t a, b;
  std::memcpy(&a, &x, 4);
  std::memcpy(&b, &sign, 4);
  a = (a & 0x7fffffffu) | (b & 0x80000000u);
  std::memcpy(&x, &a, 4);
  return x;
}

// Beyond this, too few digits are left of x less a multiple of pi / 2.
constexpr float kMostForTurns = 8000;

// sin(x + quarters * pi / 2).
inline float SinOf(float x, int32_t quarters) {
  // Rounds to the nearest whole number by adding what pushes all digits behind the point out.
  constexpr float kRound = 12582912.0f;
  const float turns = (x * 0.636619772367581f + kRound) - kRound;
  const int32_t quadrant = static_cast<int32_t>(turns) + quarters;
  const float r = ((x - turns * 1.5703125f) - turns * 4.837512969970703125e-4f) - turns * 7.549789948768648e-8f;
  const float z = r * r;
  const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  const float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  const float y = (quadrant & 1) != 0 ? cosine : r == 0 ? x : sine;  // -0 stays what it is
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

// atan(over / under) for positive ones.
inline float AtanOf(float over, float under) {
  const bool steep = over > 2.414213562373095f * under, middling = over > 0.4142135623730950f * under;
  const float a = steep ? -under : middling ? over - under : over;
  const float b = steep ? over : middling ? over + under : under;
  const float base = steep ? kHalfPi : middling ? kQuarterPi : 0.0f;
  const float t = a / b, z = t * t;
  const float p =
      (((8.05374449538e-2f * z - 1.38776856032e-1f) * z + 1.99777106478e-1f) * z - 3.33329491539e-1f) * z * t + t;
  return base + p;
}

// asin of x in [0, 1/2], from x and its square.
inline float AsinOf(float x, float z) {
  return ((((4.2163199048e-2f * z + 2.4181311049e-2f) * z + 4.5470025998e-2f) * z + 7.4953002686e-2f) * z +
          1.6666752422e-1f) * z * x + x;
}

}  // namespace

void Sin(const float* x, float* y, int64_t n) { SinLoop<0>(x, y, n); }
void Cos(const float* x, float* y, int64_t n) { SinLoop<1>(x, y, n); }

void Atan(const float* x, float* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    // Beyond 2^30 nothing changes, and infinity would give no number.
    const float a = std::fabs(x[i]), capped = a > 1073741824.0f ? 1073741824.0f : a;
    y[i] = WithSign(AtanOf(capped, 1.0f), x[i]);
  }
}

void Atan2(const float* y, const float* x, float* out, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t m = n - begin < kPiece ? n - begin : kPiece;
    const float *const py = y + begin, *const px = x + begin;
    // Sizes that a quotient or a product could lose, zeros and what is no number take the long way.
    int odd = 0;
    for (int64_t i = 0; i < m; ++i) {
      const float a = std::fabs(py[i]), b = std::fabs(px[i]);
      odd |= !(a > 1e-18f) | !(b > 1e-18f) | !(a < 1e18f) | !(b < 1e18f);
    }
    float result[kPiece];
    if (odd != 0) {
      for (int64_t i = 0; i < m; ++i) result[i] = std::atan2(py[i], px[i]);
    } else {
      for (int64_t i = 0; i < m; ++i) {
        const float angle = AtanOf(std::fabs(py[i]), std::fabs(px[i]));
        result[i] = WithSign(px[i] < 0 ? kPi - angle : angle, py[i]);
      }
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
    const float near = p + p;  // of |x| close to 1
    const float far = kHalfPi - WithSign(p, x[i]);
    y[i] = large ? (x[i] < 0 ? kPi - near : near) : far;
  }
}

void Erfc(const float* x, float* y, int64_t n) {
  float squares[kPiece], e[kPiece], result[kPiece];
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t m = n - begin < kPiece ? n - begin : kPiece;
    const float* const from = x + begin;
    for (int64_t i = 0; i < m; ++i) {
      const float a = std::fabs(from[i]), capped = a > 11.0f ? 11.0f : a;
      squares[i] = -capped * capped;
    }
    Exp(squares, e, m);
    for (int64_t i = 0; i < m; ++i) {
      const float v = from[i], a = std::fabs(v), capped = a > 11.0f ? 11.0f : a;
      const float z = v * v;
      const float inner =
          1.0f - v * ((((((7.853861353153693e-5f * z - 8.010193625184903e-4f) * z + 5.188327685732524e-3f) * z -
                         2.685381193529856e-2f) * z + 1.128358514861418e-1f) * z - 3.761262582423300e-1f) * z +
                      1.128379165726710e+0f);
      // What squaring lost of a * a: e^-(a^2) is steep.
      const float high = static_cast<float>(static_cast<int32_t>(capped * 256.0f)) * 0.00390625f, low = capped - high;
      const float lost = ((high * high + squares[i]) + 2.0f * high * low) + low * low;
      const float q = 1.0f / (capped < 1.0f ? 1.0f : capped), w = q * q;
      const float near = (((((((2.326819970068386e-2f * w - 1.387039388740657e-1f) * w + 3.687424674597105e-1f) * w -
                              5.824733027278666e-1f) * w + 6.210004621745983e-1f) * w - 4.944515323274145e-1f) * w +
                           3.404879937665872e-1f) * w - 2.741127028184656e-1f) * w + 5.638259427386472e-1f;
      const float far = ((((((-1.047766399936249e+1f * w + 1.297719955372516e+1f) * w - 7.495518717768503e+0f) * w +
                            2.921019019210786e+0f) * w - 1.015265279202700e+0f) * w + 4.218463358204948e-1f) * w -
                         2.820767439740514e-1f) * w + 5.641895067754075e-1f;
      const float tail = (e[i] - e[i] * lost) * q * (capped < 2.0f ? near : far);
      const float outer = v < 0 ? 2.0f - tail : tail;
      const float number = a < 1.0f ? inner : outer;
      result[i] = v == v ? number : v;
    }
    std::memcpy(y + begin, result, m * sizeof(float));
  }
}

}  // namespace millrace::vector
