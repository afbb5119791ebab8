// RandomGammaGrad: the derivative of a gamma sample with respect to alpha at a fixed quantile: -(dP/dalpha) / p, for
// the cumulative distribution function P and the density p.
#include <cmath>
#include <limits>
#include <type_traits>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/math/special_functions.h"

namespace millrace::random {
namespace {

// A value with its derivative by alpha.
struct Dual {
  double value = 0, slope = 0;
};
Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
Dual operator/(Dual a, Dual b) {
  const double inverse = 1 / b.value, value = a.value * inverse;
  return {value, (a.slope - value * b.slope) * inverse};
}

// d P(alpha, x) / d alpha divided by the density, from the power series of P.
double BySeries(double alpha, double x, double log_x, double digamma, double epsilon) {
  // P = x p(x) / alpha * sum of x^n / ((alpha + 1) ... (alpha + n)), where p is the density.
  Dual term{1, 0}, sum{1, 0};
  for (int n = 1; n < 20000; ++n) {
    const double inverse = 1 / (alpha + n);
    term.value *= x * inverse;
    term.slope = (term.slope * x - term.value) * inverse;
    sum = sum + term;
    if (std::abs(term.value) <= epsilon * sum.value && std::abs(term.slope) <= epsilon * std::abs(sum.slope)) break;
  }
  const Dual factor = Dual{x, 0} / Dual{alpha, 1};
  const Dual scaled = factor * sum;  // P / p
  return scaled.slope + scaled.value * (log_x - digamma);
}

// The same from the continued fraction of Q = 1 - P, for x well above alpha.
double ByFraction(double alpha, double x, double log_x, double digamma, double epsilon) {
  // Q = x p(x) / (x + 1 - alpha - 1 (1 - alpha) / (x + 3 - alpha - ...)), by Lentz's method.
  constexpr double kTiny = 1e-300;
  Dual b{x + 1 - alpha, -1};
  Dual c{1 / kTiny, 0};
  Dual d = Dual{1, 0} / b;
  Dual h = d;
  for (int n = 1; n < 2000; ++n) {
    const Dual a{-n * (n - alpha), static_cast<double>(n)};
    b = b + Dual{2, 0};
    d = a * d + b;
    if (std::abs(d.value) < kTiny) d.value = kTiny;
    c = b + a / c;
    if (std::abs(c.value) < kTiny) c.value = kTiny;
    d = Dual{1, 0} / d;
    const Dual step = d * c;
    h = h * step;
    if (std::abs(step.value - 1) < epsilon && std::abs(step.slope) < epsilon) break;
  }
  const Dual scaled = Dual{x, 0} * h;  // Q / p
  return -(scaled.slope + scaled.value * (log_x - digamma));
}

// `epsilon` is the relative truncation error of the series.
double SampleSlope(double alpha, double x, double epsilon) {
  if (std::isnan(alpha) || std::isnan(x)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return 0;
  if (!(x > 0) || !(alpha > 0)) return std::numeric_limits<double>::quiet_NaN();
  const double log_x = std::log(x), digamma = Digamma(alpha);
  return -(x > 1 && x > alpha + 1 ? ByFraction(alpha, x, log_x, digamma, epsilon)
                                  : BySeries(alpha, x, log_x, digamma, epsilon));
}

struct RandomGammaSlope {
  static constexpr int64_t kGrain = 256;
  template <typename T>
  T operator()(T alpha, T sample) const {
    // Far below what T can tell, since the two parts of the result may nearly cancel.
    constexpr double kEpsilon = std::is_same_v<T, float> ? 1e-11 : 1e-16;
    return static_cast<T>(SampleSlope(static_cast<double>(alpha), static_cast<double>(sample), kEpsilon));
  }
};

}  // namespace

MILLRACE_OP(RandomGammaGrad)
    .Input("alpha: T")
    .Input("sample: T")
    .Output("output: T")
    .Attr("T: {float, double}")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Summary("The derivative of a gamma sample with respect to alpha.");

MILLRACE_KERNEL(RandomGammaGrad, kCpu, BinaryOf<RandomGammaSlope, Types<float, double>>);

}  // namespace millrace::random
