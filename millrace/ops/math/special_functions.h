// Special functions that the standard library lacks.
#pragma once

#include <math.h>

namespace millrace {

// log |Gamma(x)|; infinite at 0, -1, -2 and so on. Thread-safe, unlike std::lgamma, which sets signgam.
inline double LogGamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}
inline float LogGamma(float x) {
  int sign = 0;
  return ::lgammaf_r(x, &sign);
}
// The derivative of log Gamma. NaN at negative integers, infinite at 0.
double Digamma(double x);
float Digamma(float x);
// The sum over k >= 0 of (k + q)^-x, for x > 1. NaN outside its domain.
double HurwitzZeta(double x, double q);
// The n-th derivative of Digamma for integers n >= 0; NaN otherwise.
double Polygamma(double n, double x);

}  // namespace millrace
