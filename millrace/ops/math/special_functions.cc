#include "millrace/ops/math/special_functions.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace millrace {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// Bernoulli numbers B2, B4, ...
constexpr double kBernoulli[] = {1.0 / 6,       -1.0 / 30, 1.0 / 42,      -1.0 / 30,     5.0 / 66,
                                 -691.0 / 2730, 7.0 / 6,   -3617.0 / 510, 43867.0 / 798, -174611.0 / 330};

}  // namespace

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

// As for double, with as many terms as float precision needs and a single division for the recurrence: the sum of 1 / x
// is kept as a fraction.
float Digamma(float x) {
  if (x == 0 || std::isnan(x) || x == -kInfinity) return static_cast<float>(Digamma(static_cast<double>(x)));
  double reflected = 0, at = x;
  if (x < 0) {
    const double whole = std::floor(at);
    if (at == whole) return static_cast<float>(kNaN);
    reflected = std::numbers::pi / std::tan(static_cast<float>(std::numbers::pi * (at - whole)));
    at = 1 - at;
  }
  double over = 0, under = 1;
  for (; at < 6; at += 1) {
    over = over * at + under;
    under *= at;
  }
  const double inverse2 = 1 / (at * at);
  const double series =
      ((((1.0 / 132 * inverse2 - 1.0 / 240) * inverse2 + 1.0 / 252) * inverse2 - 1.0 / 120) * inverse2 + 1.0 / 12) *
      inverse2;
  return static_cast<float>(std::log(at) - 0.5 / at - series - over / under - reflected);
}

// Euler-Maclaurin summation: a few explicit terms, then the integral of the rest with corrections.
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

}  // namespace millrace
