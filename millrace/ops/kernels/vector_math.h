// Elementary functions over arrays, several elements at a time.
//
// y may be x. What an element becomes depends on its value alone, not on its place in the array, so
// results do not depend on how work is split.
#pragma once

#include <cstdint>

namespace millrace::vector {

void Erf(const float* x, float* y, int64_t n);
void Exp(const float* x, float* y, int64_t n);
void Exp(const double* x, double* y, int64_t n);
void Expm1(const float* x, float* y, int64_t n);
void Log(const float* x, float* y, int64_t n);
void Log(const double* x, double* y, int64_t n);
void Log1p(const float* x, float* y, int64_t n);
void Tanh(const float* x, float* y, int64_t n);
void Sigmoid(const float* x, float* y, int64_t n);
void Sigmoid(const double* x, double* y, int64_t n);
void Sin(const float* x, float* y, int64_t n);
void Cos(const float* x, float* y, int64_t n);

}  // namespace millrace::vector
