#include "millrace/ops/kernels/vector_math.h"

#include <Eigen/Core>
#include <algorithm>
#include <unsupported/Eigen/SpecialFunctions>

namespace millrace::vector {
namespace {

// Always works on whole packets: the rest at the end is padded, so that every element takes the
// same path.
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

// e^x, with the values below the smallest number as the zeros they are.
template <typename P>
inline auto ExpPacket(const P& x_in, typename P::Scalar smallest) {
  using Packet = Eigen::Array<typename P::Scalar, P::SizeAtCompileTime, 1>;
  const Packet x = x_in;
  Packet y = x.exp();
  for (int k = 0; k < Packet::SizeAtCompileTime; ++k) y[k] = x[k] < smallest ? 0 : y[k];
  return y;
}

// The approximation cuts off at its ends, which would make a number of what is none.
template <typename P>
inline auto ErfPacket(const P& x_in) {
  using Packet = Eigen::Array<typename P::Scalar, P::SizeAtCompileTime, 1>;
  const Packet x = x_in;
  Packet y = x.erf();
  for (int k = 0; k < Packet::SizeAtCompileTime; ++k) y[k] = x[k] == x[k] ? y[k] : x[k];
  return y;
}

}  // namespace

void Erf(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ErfPacket(p); });
}
void Exp(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ExpPacket(p, -104.0f); });
}
void Exp(const double* x, double* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ExpPacket(p, -746.0); });
}
void Expm1(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return p.expm1(); });
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
void Tanh(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return p.tanh(); });
}
void Sigmoid(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ((-p).exp() + 1.0f).inverse(); });
}
void Sigmoid(const double* x, double* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return ((-p).exp() + 1.0).inverse(); });
}
void Sin(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return p.sin(); });
}
void Cos(const float* x, float* y, int64_t n) {
  Map(x, y, n, [](const auto& p) { return p.cos(); });
}

}  // namespace millrace::vector
