// Functions of mathematics that the standard library lacks, in double precision.
#pragma once

namespace millrace {

// log |Gamma(x)|; infinite at 0, -1, -2, ... Unlike std::lgamma it touches no global variable.
double LogGamma(double x);
// The derivative of log Gamma. NaN at negative whole numbers, infinite at 0.
double Digamma(double x);
// The sum over k >= 0 of (k + q)^-x, for x > 1. NaN outside of its domain.
double HurwitzZeta(double x, double q);
// The n-th derivative of Digamma, for whole n >= 0; NaN otherwise.
double Polygamma(double n, double x);
// The regularised lower and upper incomplete gamma functions, for a > 0 and x >= 0; NaN otherwise.
double LowerGamma(double a, double x);
double UpperGamma(double a, double x);
// The regularised incomplete beta function, for a, b > 0 and x in [0, 1]; NaN otherwise.
double IncompleteBeta(double a, double b, double x);

}  // namespace millrace
