// What element-wise ops compute for one element, on the CPU and on a GPU.
//
// Two compilers read this: the CPU's, by way of the ops' files, whose loops may add a faster Run for arrays; NVRTC,
// as text that the programs of ops/kernels/cuda/ begin with, behind prelude.h there. That has what these functors use
// of the standard library (std::sqrt and its kin, is_floating_point_v) and kHasParts: NVRTC reads no other header.
#pragma once

#if !defined(__CUDACC_RTC__) && !defined(MILLRACE_ON_HOST)  // the CPU's compiler
#include <cmath>
#include <complex>
#include <type_traits>
#ifndef MR_FN
#define MR_FN
#endif
namespace millrace {
template <typename T>
inline constexpr bool kHasParts = false;  // a real and an imaginary one
template <typename T>
inline constexpr bool kHasParts<std::complex<T>> = true;
}  // namespace millrace
#endif

namespace millrace {

struct AddFn {
  static constexpr bool kSignless = true;
  template <typename T>
  MR_FN T operator()(const T& a, const T& b) const {
    return a + b;
  }
};

struct SubFn {
  static constexpr bool kSignless = true;
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    return a - b;
  }
};

struct MulFn {
  static constexpr bool kSignless = true;
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    return a * b;
  }
};

struct MulNoNanFn {
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    return b == T(0) ? T(0) : a * b;
  }
};

struct SquareFn {
  static constexpr bool kSignless = true;
  template <typename T>
  MR_FN T operator()(T x) const {
    return x * x;
  }
};

struct SquaredDifferenceFn {
  static constexpr bool kSignless = true;
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    const T d = a - b;
    if constexpr (kHasParts<T>) {
      return d * std::conj(d);
    } else {
      return d * d;
    }
  }
};

struct DivNoNanFn {
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    return b == T(0) ? T(0) : a / b;
  }
};

struct NegFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return -x;
  }
};

struct AbsFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(x);
    } else {
      return x < 0 ? -x : x;
    }
  }
};

struct SignFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    if constexpr (kHasParts<T>) {
      return x == T(0) ? T(0) : x / std::abs(x);
    } else if constexpr (std::is_floating_point_v<T>) {
      return x > 0 ? T(1) : x < 0 ? T(-1) : x != x ? x : T(0);
    } else {
      return (x > 0) - (x < 0);
    }
  }
};

struct MaximumFn {
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

struct MinimumFn {
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

struct SqrtFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::sqrt(x);
  }
};

struct RsqrtFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return T(1) / std::sqrt(x);
  }
};

// Gradients, from the output y and its gradient dy.
struct SqrtGradFn {
  template <typename T>
  MR_FN T operator()(T y, T dy) const {
    if constexpr (kHasParts<T>) y = std::conj(y);
    return dy * T(0.5) / y;
  }
};

struct RsqrtGradFn {
  template <typename T>
  MR_FN T operator()(T y, T dy) const {
    if constexpr (kHasParts<T>) y = std::conj(y);
    return T(-0.5) * (dy * y) * (y * y);
  }
};

struct ReciprocalFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return T(1) / x;
  }
};

struct ReciprocalGradFn {
  template <typename T>
  MR_FN T operator()(T y, T dy) const {
    if constexpr (kHasParts<T>) y = std::conj(y);
    return -dy * y * y;
  }
};

struct ExpFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::exp(x);
  }
};

struct Expm1Fn {
  template <typename T>
  MR_FN T operator()(T x) const {
    if constexpr (kHasParts<T>) {
      // e^(a+bi) - 1 without the loss of digits near 0.
      const auto a = x.real(), b = x.imag();
      const auto grown = std::expm1(a), s = std::sin(b / 2);
      return T(grown * std::cos(b) - 2 * s * s, (grown + 1) * std::sin(b));
    } else {
      return std::expm1(x);
    }
  }
};

struct LogFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::log(x);
  }
};

struct Log1pFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    if constexpr (kHasParts<T>) {
      const auto a = x.real(), b = x.imag();
      return T(std::log1p(2 * a + a * a + b * b) / 2, std::atan2(b, 1 + a));
    } else {
      return std::log1p(x);
    }
  }
};

struct SigmoidFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return T(1) / (T(1) + std::exp(-x));
  }
};

struct TanhFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::tanh(x);
  }
};

struct SigmoidGradFn {
  template <typename T>
  MR_FN T operator()(T y, T dy) const {
    if constexpr (kHasParts<T>) y = std::conj(y);
    return dy * y * (T(1) - y);
  }
};

struct TanhGradFn {
  template <typename T>
  MR_FN T operator()(T y, T dy) const {
    if constexpr (kHasParts<T>) y = std::conj(y);
    return dy * (T(1) - y * y);
  }
};

struct EqualFn {
  static constexpr bool kSignless = true;
  template <typename T>
  MR_FN bool operator()(const T& a, const T& b) const {
    return a == b;
  }
};

struct NotEqualFn {
  static constexpr bool kSignless = true;
  template <typename T>
  MR_FN bool operator()(const T& a, const T& b) const {
    return a != b;
  }
};

struct LessFn {
  template <typename T>
  MR_FN bool operator()(const T& a, const T& b) const {
    return a < b;
  }
};

struct LessEqualFn {
  template <typename T>
  MR_FN bool operator()(const T& a, const T& b) const {
    return a <= b;
  }
};

struct LogicalAndFn {
  MR_FN bool operator()(bool a, bool b) const { return a & b; }
};

struct LogicalOrFn {
  MR_FN bool operator()(bool a, bool b) const { return a | b; }
};

struct NotFn {
  MR_FN bool operator()(bool x) const { return !x; }
};

// For types that are not integers, whose division can fail.
struct DivideFn {
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    return a / b;
  }
};
struct CeilFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::ceil(x);
  }
};
struct FloorFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::floor(x);
  }
};
// Half to even.
struct RintFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::rint(x);
  }
};
struct SinFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::sin(x);
  }
};
struct CosFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return std::cos(x);
  }
};
// For types that are not integers, whose powers can fail.
struct PowerFn {
  template <typename T>
  MR_FN T operator()(T a, T b) const {
    // Common constant exponents, whose loops vectorise.
    if constexpr (!kHasParts<T>) {
      if (b == T(2)) return a * a;
      if (b == T(3)) return a * a * a;
    }
    return std::pow(a, b);
  }
};
struct IsNanFn {
  template <typename T>
  MR_FN bool operator()(T x) const {
    return x != x;
  }
};
struct IsFiniteFn {
  template <typename T>
  MR_FN bool operator()(T x) const {
    return x - x == T(0);
  }
};
struct IsInfFn {
  template <typename T>
  MR_FN bool operator()(T x) const {
    return (x == x) & (x - x != T(0));
  }
};
struct ReluFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }
};
// Of the gradient and of x, or Relu(x).
struct ReluGradFn {
  template <typename T>
  MR_FN T operator()(T dy, T x) const {
    return x > T(0) ? dy : T(0);
  }
};
struct Relu6Fn {
  template <typename T>
  MR_FN T operator()(T x) const {
    const T low = x < T(0) ? T(0) : x;
    return low > T(6) ? T(6) : low;
  }
};
struct Relu6GradFn {
  template <typename T>
  MR_FN T operator()(T dy, T x) const {
    return ((x > T(0)) & (x < T(6))) ? dy : T(0);
  }
};
// Of x, exp(x) and log(1 + exp(x)): if exp(x) + 1 rounds to exp(x) or 1, the result is x or exp(x).
struct SoftplusFn {
  template <typename T>
  MR_FN static T Of(T x, T exp, T log) {
    const T threshold = sizeof(T) == 8 ? T(-34.043653389117155) : T(-13.942385152878742);  // log(epsilon) + 2
    return x > -threshold ? x : (x < threshold ? exp : log);
  }
  template <typename T>
  MR_FN T operator()(T x) const {
    const T exp = std::exp(x);
    return Of(x, exp, std::log1p(exp));
  }
};
// Of the gradient and x, or exp(-x).
struct SoftplusGradFn {
  template <typename T>
  MR_FN static T Of(T dy, T exp) {
    return dy / (exp + T(1));
  }
  template <typename T>
  MR_FN T operator()(T dy, T x) const {
    return Of(dy, std::exp(-x));
  }
};
// Of x and exp(x) - 1.
struct EluFn {
  template <typename T>
  MR_FN static T Of(const T& x, const T& expm1) {
    return x < T(0) ? expm1 : x;
  }
  template <typename T>
  MR_FN T operator()(T x) const {
    return Of(x, std::expm1(x));
  }
};
struct EluGradFn {
  template <typename T>
  MR_FN T operator()(T dy, T y) const {
    return y < T(0) ? (y + T(1)) * dy : dy;
  }
};
struct SeluFn {
  static constexpr double kScale = 1.0507009873554804934193349852946;
  static constexpr double kScaleAlpha = 1.7580993408473768599402175208123;
  template <typename T>
  MR_FN static T Of(const T& x, const T& expm1) {
    return x < T(0) ? T(kScaleAlpha) * expm1 : T(kScale) * x;
  }
  template <typename T>
  MR_FN T operator()(T x) const {
    return Of(x, std::expm1(x));
  }
};
struct SeluGradFn {
  template <typename T>
  MR_FN T operator()(T dy, T y) const {
    return y < T(0) ? dy * (y + T(SeluFn::kScaleAlpha)) : dy * T(SeluFn::kScale);
  }
};
struct SelectFn {
  template <typename T>
  MR_FN T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};
// Of two elements that are combined in their order: a, if one of them is NaN.
struct LesserOfFn {
  template <typename T>
  MR_FN T operator()(const T& a, const T& b) const {
    return b < a ? b : a;
  }
};
struct GreaterOfFn {
  template <typename T>
  MR_FN T operator()(const T& a, const T& b) const {
    return a < b ? b : a;
  }
};
struct ClipFn {
  template <typename T>
  MR_FN T operator()(T x, T low, T high) const {
    const T capped = high < x ? high : x;
    return capped < low ? low : capped;
  }
};
// The order of ArgMax and ArgMin: whether x comes before the best so far. Numbers come before NaN.
struct ArgMaxBeforeFn {
  template <typename T>
  MR_FN bool operator()(T x, T best) const {
    return (x > best) | ((best != best) & (x == x));
  }
};
struct ArgMinBeforeFn {
  template <typename T>
  MR_FN bool operator()(T x, T best) const {
    return (x < best) | ((best != best) & (x == x));
  }
};
// The order of TopK: larger first, ties by place. NaN comes before every number, so that the order is strict.
struct TopKBeforeFn {
  template <typename T, typename Place>
  MR_FN bool operator()(T a, Place at_a, T b, Place at_b) const {
    if (a > b) return true;
    if (a < b) return false;
    if (a != a && b == b) return true;
    if (a == a && b != b) return false;
    return at_a < at_b;
  }
};
struct IdentityFn {
  template <typename T>
  MR_FN T operator()(T x) const {
    return x;
  }
};
struct ZeroFn {
  template <typename T>
  MR_FN T operator()(T) const {
    return T(0);
  }
};
struct OneFn {
  template <typename T>
  MR_FN T operator()(T) const {
    return T(1);
  }
};

}  // namespace millrace
