// Vectorised elementary functions over arrays.
//
// y may alias x. The result of an element depends only on its value, not on its position, so results do not depend on
// how work is split.
#pragma once

#include <cstdint>

namespace millrace::vector {

void Erf(const float* x, float* y, int64_t n);
void Exp(const float* x, float* y, int64_t n);
void Exp(const double* x, double* y, int64_t n);
// y = e^(x - shift), where shift is the largest x; adds element i of y to sums[i % 8].
void ExpOfDifference(const float* x, float shift, float* y, int64_t n, float* sums);
// The same, interleaved with the non-temporal copy to = from * scale, so that computation hides the stores. Both have n
// floats, a multiple of 8, and `to` is 32-byte aligned. Call StreamFence afterwards.
struct StreamedRow {
  const float* from;
  float scale;
  float* to;
};
void ExpOfDifference(const float* x, float shift, float* y, int64_t n, float* sums, const StreamedRow& before);
void Expm1(const float* x, float* y, int64_t n);
void Log(const float* x, float* y, int64_t n);
void Log(const double* x, double* y, int64_t n);
void Log1p(const float* x, float* y, int64_t n);
void Rsqrt(const float* x, float* y, int64_t n);
void Tanh(const float* x, float* y, int64_t n);
void Sigmoid(const float* x, float* y, int64_t n);
void Sigmoid(const double* x, double* y, int64_t n);
void Sinh(const float* x, float* y, int64_t n);
void Cosh(const float* x, float* y, int64_t n);
void Acosh(const float* x, float* y, int64_t n);
void Atanh(const float* x, float* y, int64_t n);
void Erfc(const float* x, float* y, int64_t n);
void Asin(const float* x, float* y, int64_t n);
void Acos(const float* x, float* y, int64_t n);
void Atan(const float* x, float* y, int64_t n);
// The angle of the point (x, y).
void Atan2(const float* y, const float* x, float* out, int64_t n);
void Sin(const float* x, float* y, int64_t n);
void Cos(const float* x, float* y, int64_t n);

}  // namespace millrace::vector
