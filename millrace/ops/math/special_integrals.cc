// Dawsn, Expint, FresnelCos, FresnelSin, Spence: functions that are integrals, computed in double precision.
#include <cmath>
#include <complex>
#include <limits>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr double kEuler = 0.57721566490153286;

// Rybicki's sum, exact to rounding for this step.
double Dawson(double x) {
  if (std::isnan(x)) return x;
  const double size = std::abs(x);
  if (size > 1e8) return 0.5 / x;
  if (size < 0.2) {
    const double y = x * x;
    return x *
           (1 - y * (2.0 / 3) *
                    (1 - y * 0.4 *
                             (1 - y * (2.0 / 7) * (1 - y * (2.0 / 9) * (1 - y * (2.0 / 11) * (1 - y * (2.0 / 13)))))));
  }
  constexpr double kStep = 0.2;
  const int nearest = 2 * static_cast<int>(0.5 * size / kStep + 0.5);
  const double rest = size - nearest * kStep;
  double sum = 0;
  for (int i = -35; i <= 35; i += 2) {
    const double at = rest - i * kStep;
    sum += std::exp(-at * at) / (nearest + i);
  }
  return std::copysign(sum / std::sqrt(M_PI), x);
}

// Ei(x) for x >= 0, where TensorFlow defines it.
double ExponentialIntegral(double x) {
  if (std::isnan(x)) return x;
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(x)) return x;
  if (x < 40) {
    double sum = 0, term = 1;
    for (int k = 1; k < 400; ++k) {
      term *= x / k;
      sum += term / k;
      if (term / k < 1e-17 * sum) break;
    }
    return sum + std::log(x) + kEuler;
  }
  double sum = 0, term = 1;
  for (int k = 1; k < 100; ++k) {
    const double next = term * k / x;
    if (next < 1e-17 || next > term) break;
    term = next;
    sum += term;
  }
  return std::exp(x) * (1 + sum) / x;
}

// C(x) and S(x).
void Fresnel(double x, double* cosine, double* sine) {
  const double size = std::abs(x);
  double c = 0, s = 0;
  if (std::isinf(size)) {
    c = s = 0.5;
  } else if (size < 1.5) {
    const double y = M_PI_2 * size * size;
    double term = size;
    for (int k = 0; k < 60; ++k) {
      const double part = term / (2 * k + 1);
      (k % 2 == 0 ? c : s) += (k / 2) % 2 == 0 ? part : -part;
      term *= y / (k + 1);
      if (term < 1e-18) break;
    }
  } else {
    using C = std::complex<double>;
    const double pix2 = M_PI * size * size;
    C b(1, -pix2), cc = 1e300, d = 1.0 / b, h = d;
    double n = -1;
    for (int k = 2; k < 300; ++k) {
      n += 2;
      const double a = -n * (n + 1);
      b += 4.0;
      d = 1.0 / (a * d + b);
      cc = b + a / cc;
      const C factor = cc * d;
      h *= factor;
      if (std::abs(factor.real() - 1) + std::abs(factor.imag()) < 1e-16) break;
    }
    h *= C(size, -size);
    const double angle = 0.5 * pix2;
    const C result = C(0.5, 0.5) * (1.0 - C(std::cos(angle), std::sin(angle)) * h);
    c = result.real();
    s = result.imag();
  }
  *cosine = std::copysign(c, x);
  *sine = std::copysign(s, x);
}

// The dilogarithm Li2(1 - x).
double SpenceOf(double x) {
  if (std::isnan(x) || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return M_PI * M_PI / 6;
  if (x == 1) return 0;
  // To arguments near 1, where the series of Li2(z), z = 1 - x, is short.
  if (x > 2) {
    const double log_x = std::log(x);
    return -0.5 * log_x * log_x - SpenceOf(1 / x);
  }
  if (x < 0.5) return M_PI * M_PI / 6 - std::log(x) * std::log1p(-x) - SpenceOf(1 - x);
  if (x > 1.5) {
    const double log_x = std::log(x);
    return -0.5 * log_x * log_x - SpenceOf(1 / x);
  }
  const double z = 1 - x;
  double sum = 0, power = 1;
  for (int k = 1; k < 200; ++k) {
    power *= z;
    const double term = power / (static_cast<double>(k) * k);
    sum += term;
    if (std::abs(term) < 1e-18 * std::abs(sum)) break;
  }
  return sum;
}

#define MR_INTEGRAL(Name, expression, summary)              \
  struct Name##Function {                                   \
    static constexpr int64_t kGrain = kCostlyGrain / 8;     \
    template <typename T>                                   \
    T operator()(T x) const {                               \
      return static_cast<T>(expression);                    \
    }                                                       \
  };                                                        \
  MILLRACE_OP(Name)                                         \
      .Input("x: T")                                        \
      .Output("y: T")                                       \
      .Attr("T: {bfloat16, half, float, double}")           \
      .Shape(UnchangedShape)                                \
      .Trait(OpTrait::kElementwise)                         \
      .Summary(summary);                                    \
  using Name##Kernel = UnaryOf<Name##Function, FloatTypes>; \
  MILLRACE_KERNEL(Name, kCpu, Name##Kernel)

double FresnelCosOf(double x) {
  double c = 0, s = 0;
  Fresnel(x, &c, &s);
  return c;
}
double FresnelSinOf(double x) {
  double c = 0, s = 0;
  Fresnel(x, &c, &s);
  return s;
}

MR_INTEGRAL(Dawsn, Dawson(x), "Dawson's integral.");
MR_INTEGRAL(Expint, ExponentialIntegral(x), "The exponential integral.");
MR_INTEGRAL(FresnelCos, FresnelCosOf(x), "Fresnel's cosine integral.");
MR_INTEGRAL(FresnelSin, FresnelSinOf(x), "Fresnel's sine integral.");
MR_INTEGRAL(Spence, SpenceOf(x), "Spence's integral, the dilogarithm of 1 - x.");

}  // namespace
}  // namespace millrace
