#include "millrace/ops/math/special_functions.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <numbers>

namespace millrace {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kTiny = 1e-300;
constexpr int kMostTerms = 2000;

// Bernoulli numbers B2, B4, ...
constexpr double kBernoulli[] = {1.0 / 6,    -1.0 / 30,     1.0 / 42, -1.0 / 30,      5.0 / 66,
                                 -691.0 / 2730, 7.0 / 6, -3617.0 / 510, 43867.0 / 798, -174611.0 / 330};

}  // namespace

double LogGamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

double Digamma(double x) {
  if (x == 0) return std::copysign(kInfinity, -x);
  if (std::isnan(x) || x == -kInfinity) return kNaN;
  if (x < 0) {
    const double whole = std::floor(x);
    if (x == whole) return kNaN;
    // Reflection: psi(1 - x) - psi(x) = pi / tan(pi x).
    return Digamma(1 - x) - std::numbers::pi / std::tan(std::numbers::pi * (x - whole));
  }
  double shifted = 0;
  while (x < 10) {
    shifted -= 1 / x;
    x += 1;
  }
  const double inverse2 = 1 / (x * x);
  double series = 0, power = inverse2;
  for (int k = 0; k < 8; ++k) {
    series += kBernoulli[k] / (2 * (k + 1)) * power;
    power *= inverse2;
  }
  return shifted + std::log(x) - 0.5 / x - series;
}

// Euler-Maclaurin: a few terms one by one, then the integral of the rest and its corrections.
double HurwitzZeta(double x, double q) {
  if (x == 1) return kInfinity;
  if (!(x > 1)) return kNaN;
  if (q <= 0) {
    if (q == std::floor(q)) return kInfinity;
    if (x != std::floor(x)) return kNaN;
  }
  double sum = 0;
  double at = q;
  for (int k = 0; k < 12 || at < 10; ++k, at += 1) {
    const double term = std::pow(at, -x);
    sum += term;
    if (k >= 12 && std::fabs(term) < kEpsilon * std::fabs(sum)) return sum;
    if (k > 100000) return kNaN;
  }
  sum += std::pow(at, 1 - x) / (x - 1) + 0.5 * std::pow(at, -x);
  // B2j / (2j)! * x (x+1) ... (x+2j-2) * at^(-x-2j+1).
  double factor = x * std::pow(at, -x - 1);
  double factorial = 2;
  for (int j = 1; j <= 10; ++j) {
    const double term = kBernoulli[j - 1] / factorial * factor;
    sum += term;
    if (std::fabs(term) < kEpsilon * std::fabs(sum)) break;
    factor *= (x + 2 * j - 1) * (x + 2 * j) / (at * at);
    factorial *= (2.0 * j + 1) * (2.0 * j + 2);
  }
  return sum;
}

double Polygamma(double n, double x) {
  if (n < 0 || n != std::floor(n)) return kNaN;
  if (n == 0) return Digamma(x);
  const double sign = std::fmod(n, 2) == 0 ? -1 : 1;
  return sign * std::exp(LogGamma(n + 1)) * HurwitzZeta(n + 1, x);
}

namespace {

// x^a e^-x / Gamma(a).
double GammaWeight(double a, double x) { return std::exp(a * std::log(x) - x - LogGamma(a)); }

// Good for x below a + 1.
double GammaSeries(double a, double x) {
  double term = 1 / a, sum = term;
  for (int k = 1; k < kMostTerms * 10; ++k) {
    term *= x / (a + k);
    sum += term;
    if (term < kEpsilon * sum) break;
  }
  return sum * GammaWeight(a, x);
}

// The continued fraction, by Lentz's method; good for x above a + 1.
double GammaFraction(double a, double x) {
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, h = d;
  for (int k = 1; k < kMostTerms * 10; ++k) {
    const double an = -k * (k - a);
    b += 2;
    d = an * d + b;
    if (std::fabs(d) < kTiny) d = kTiny;
    c = b + an / c;
    if (std::fabs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double change = d * c;
    h *= change;
    if (std::fabs(change - 1) < kEpsilon) break;
  }
  return h * GammaWeight(a, x);
}

double BetaFraction(double a, double b, double x) {
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  if (std::fabs(d) < kTiny) d = kTiny;
  d = 1 / d;
  double h = d;
  for (int m = 1; m < kMostTerms; ++m) {
    for (const double numerator : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                                   -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 + numerator * d;
      if (std::fabs(d) < kTiny) d = kTiny;
      c = 1 + numerator / c;
      if (std::fabs(c) < kTiny) c = kTiny;
      d = 1 / d;
      h *= d * c;
    }
    if (std::fabs(d * c - 1) < kEpsilon) break;
  }
  return h;
}

}  // namespace

double LowerGamma(double a, double x) {
  if (std::isnan(a) || std::isnan(x) || x < 0 || a <= 0) return kNaN;
  if (x == 0) return 0;
  if (std::isinf(a)) return std::isinf(x) ? kNaN : 0;
  if (std::isinf(x)) return 1;
  return x < a + 1 ? GammaSeries(a, x) : 1 - GammaFraction(a, x);
}

double UpperGamma(double a, double x) {
  if (std::isnan(a) || std::isnan(x) || x < 0 || a <= 0) return kNaN;
  if (x == 0) return 1;
  if (std::isinf(a)) return std::isinf(x) ? kNaN : 1;
  if (std::isinf(x)) return 0;
  return x < a + 1 ? 1 - GammaSeries(a, x) : GammaFraction(a, x);
}

double IncompleteBeta(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0 && x <= 1)) return kNaN;
  if (x == 0 || x == 1) return x;
  const double weight =
      std::exp(LogGamma(a + b) - LogGamma(a) - LogGamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return weight * BetaFraction(a, b, x) / a;
  return 1 - weight * BetaFraction(b, a, 1 - x) / b;
}

}  // namespace millrace
