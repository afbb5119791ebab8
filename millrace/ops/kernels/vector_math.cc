#include "millrace/ops/kernels/vector_math.h"

#include <immintrin.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "millrace/ops/kernels/vector_packet.h"

namespace millrace::vector {
namespace {

// Works on whole packets; the remainder is padded, so that every element takes the same path.
template <typename T, typename Fn>
inline void Map(const T* x, T* y, int64_t n, Fn fn) {
  constexpr int kWidth = 32 / sizeof(T);
  using Packet = Eigen::Array<T, kWidth, 1>;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    Eigen::Map<Packet>(y + i) = fn(Eigen::Map<const Packet>(x + i));
  }
  if (i == n) return;
  Packet rest = Packet::Zero();
  std::copy(x + i, x + n, rest.data());
  const Packet result = fn(rest);
  std::copy(result.data(), result.data() + (n - i), y + i);
}

// e^x, flushing underflow to zero.
template <typename P>
inline auto ExpPacket(const P& x_in, typename P::Scalar smallest) {
  using Packet = Eigen::Array<typename P::Scalar, P::SizeAtCompileTime, 1>;
  const Packet x = x_in;
  Packet y = x.exp();
  for (int k = 0; k < Packet::SizeAtCompileTime; ++k) y[k] = x[k] < smallest ? 0 : y[k];
  return y;
}

}  // namespace

void Erf(const float* x, float* y, int64_t n) { MapVecs<ErfOf>(x, y, n); }
void Exp(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ExpPacket(p, -104.0f); });
}
void Exp(const double* x, double* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ExpPacket(p, -746.0); });
}
#ifdef __AVX2__
// For x <= 0, like a difference to the maximum: there is no overflow, and results below the smallest normal number are
// 0. x = (8 k + j) ln 2 / 8 + r: 2^(j/8) comes from a table, and e^r from a short polynomial, within 1.5 ulp.
static inline __m256 ExpOfNegative(__m256 x) {
  const auto all = [](float v) { return _mm256_set1_ps(v); };
  const __m256 roots =
      _mm256_setr_ps(1.0f, 1.09050773f, 1.18920712f, 1.29683955f, 1.41421356f, 1.54221083f, 1.68179283f, 1.83400809f);
  const __m256 rounder = all(12582912.0f);  // 1.5 * 2^23: adding it leaves the rounded integer in the lowest bits
  const __m256 rounded = _mm256_fmadd_ps(x, all(8 * 1.44269504088896341f), rounder);
  const __m256 n = _mm256_sub_ps(rounded, rounder);
  const __m256i bits = _mm256_castps_si256(rounded);
  const __m256i exponent = _mm256_slli_epi32(_mm256_srai_epi32(bits, 3), 23);
  // Added to the exponent of the table's value, which is finite for any x.
  const __m256 power =
      _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(_mm256_permutevar8x32_ps(roots, bits)), exponent));
  __m256 r = _mm256_fmadd_ps(n, all(-0.693359375f / 8), x);
  r = _mm256_fmadd_ps(n, all(2.12194440e-4f / 8), r);
  // e^r - 1; the coefficients minimise the error over |r| <= ln 2 / 16.
  const __m256 rest = _mm256_fmadd_ps(_mm256_fmadd_ps(r, all(0.16667966f), all(0.50006475f)), _mm256_mul_ps(r, r), r);
  // NaN is not less than the limit, so it passes through.
  return _mm256_and_ps(_mm256_fmadd_ps(power, rest, power), _mm256_cmp_ps(x, all(-87.3f), _CMP_NLT_UQ));
}

// n is a multiple of 8.
static inline __m256 ExpPiece(const float* x, __m256 shift, float* y, int64_t n, __m256 sum) {
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 e = ExpOfNegative(_mm256_sub_ps(_mm256_loadu_ps(x + i), shift));
    _mm256_storeu_ps(y + i, e);
    sum = _mm256_add_ps(sum, e);
  }
  return sum;
}

void ExpOfDifference(const float* x, float shift, float* y, int64_t n, float* sums) {
  const __m256 shifts = _mm256_set1_ps(shift);
  const int64_t whole = n / 8 * 8;
  _mm256_storeu_ps(sums, ExpPiece(x, shifts, y, whole, _mm256_loadu_ps(sums)));
  if (whole == n) return;
  float rest[8] = {};
  std::copy(x + whole, x + n, rest);
  _mm256_storeu_ps(rest, ExpOfNegative(_mm256_sub_ps(_mm256_loadu_ps(rest), shifts)));
  for (int64_t k = 0; k < n - whole; ++k) {
    y[whole + k] = rest[k];
    sums[k] += rest[k];
  }
}

void ExpOfDifference(const float* x, float shift, float* y, int64_t n, float* sums, const StreamedRow& before) {
  constexpr int64_t kPiece = 64;
  const __m256 shifts = _mm256_set1_ps(shift), scales = _mm256_set1_ps(before.scale);
  __m256 sum = _mm256_loadu_ps(sums);
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, n);
    sum = ExpPiece(x + begin, shifts, y + begin, end - begin, sum);
    for (int64_t i = begin; i < end; i += 8)
      _mm256_stream_ps(before.to + i, _mm256_mul_ps(_mm256_loadu_ps(before.from + i), scales));
  }
  _mm256_storeu_ps(sums, sum);
}
#else
void ExpOfDifference(const float* x, float shift, float* y, int64_t n, float* sums) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - shift;
  Exp(y, y, n);
  for (int64_t i = 0; i < n; ++i) sums[i % 8] += y[i];
}

void ExpOfDifference(const float* x, float shift, float* y, int64_t n, float* sums, const StreamedRow& before) {
  ExpOfDifference(x, shift, y, n, sums);
  for (int64_t i = 0; i < n; ++i) before.to[i] = before.from[i] * before.scale;
}
#endif
// Bit-identical to 1.0f / std::sqrt(x). The hardware's reciprocal estimate differs between CPU models, but the result
// here does not: every estimate is within 1.5 / 4096, one Newton step brings it to 4 ulp, and two more give the
// correctly rounded quotient from any start within 6 ulp, for every s but one (verified exhaustively).
void Rsqrt(const float* x, float* y, int64_t n) {
  int64_t i = 0;
#if defined(__AVX2__) && defined(__FMA__)
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256i mantissa = _mm256_set1_epi32(0x7fffff);
  for (; i + 8 <= n; i += 8) {
    const __m256 s = _mm256_sqrt_ps(_mm256_loadu_ps(x + i)), estimate = _mm256_rcp_ps(s);
    const __m256 off = _mm256_fnmadd_ps(s, estimate, one);
    __m256 r = _mm256_fmadd_ps(off, estimate, estimate);
    r = _mm256_fmadd_ps(_mm256_fnmadd_ps(s, r, one), r, r);
    r = _mm256_fmadd_ps(_mm256_fnmadd_ps(s, r, one), r, r);
    // The exception: if all mantissa bits are ones the quotient is just above the midpoint, and the last bit must be 1.
    const __m256i ones = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(s), mantissa), mantissa);
    r = _mm256_or_ps(r, _mm256_castsi256_ps(_mm256_srli_epi32(ones, 31)));
    // For 0, infinity and NaN the estimate is exact.
    _mm256_storeu_ps(y + i, _mm256_blendv_ps(r, estimate, _mm256_cmp_ps(off, off, _CMP_UNORD_Q)));
  }
#endif
  for (; i < n; ++i) y[i] = 1.0f / std::sqrt(x[i]);
}
void Log(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return p.log(); });
}
void Log(const double* x, double* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return p.log(); });
}
void Log1p(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return p.log1p(); });
}
void Tanh(const float* x, float* y, int64_t n) { MapVecs<TanhOf>(x, y, n); }
void Sigmoid(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ((-p).exp() + 1.0f).inverse(); });
}
void Sigmoid(const double* x, double* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ((-p).exp() + 1.0).inverse(); });
}
}  // namespace millrace::vector
