#include "millrace/ops/linalg/dense_linalg.h"

#include <algorithm>
#include <complex>
#include <vector>

#include "millrace/ops/linalg/lapack.h"

namespace millrace::linalg {

template <typename T>
bool Solve(const T* a, int64_t n, bool adjoint, const T* rhs, int64_t columns, T* x) {
  if (n == 0) return true;
  const int order = static_cast<int>(n), width = static_cast<int>(columns);
  std::vector<T> lu(n * n), solution(n * columns);
  std::vector<int> pivots(n);
  Transpose(a, order, order, lu.data());
  Transpose(rhs, order, width, solution.data());
  Getrf(order, order, lu.data(), order, pivots.data());
  // NaN pivots are treated as zero.
  for (int64_t i = 0; i < n; ++i) {
    if (!(std::abs(lu[i * n + i]) > 0)) return false;
  }
  Getrs(adjoint ? 'C' : 'N', order, width, lu.data(), order, pivots.data(), solution.data(), order);
  Transpose(solution.data(), width, order, x);
  return true;
}

template <typename T>
T Determinant(const T* a, int64_t n) {
  const int order = static_cast<int>(n);
  std::vector<T> lu(a, a + n * n);
  std::vector<int> pivots(n);
  Getrf(order, order, lu.data(), order, pivots.data());
  T product(1);
  for (int i = 0; i < order; ++i) {
    product *= lu[i * n + i];
    if (pivots[i] != i + 1) product = -product;
  }
  return product;
}

template <typename T>
bool Cholesky(const T* a, int64_t n, T* l) {
  if (n == 0) return true;
  std::copy(a, a + n * n, l);
  // The lower part of a row-major matrix is the upper part of its transpose u^H u, of which u is the transpose of l.
  const bool positive = Potrf('U', static_cast<int>(n), l, static_cast<int>(n)) == 0;
  for (int64_t i = 0; i < n; ++i) std::fill(l + i * n + i + 1, l + (i + 1) * n, T(0));
  return positive;
}

#define MR_INSTANTIATE(T)                                                 \
  template bool Solve<T>(const T*, int64_t, bool, const T*, int64_t, T*); \
  template T Determinant<T>(const T*, int64_t);                           \
  template bool Cholesky<T>(const T*, int64_t, T*)
MR_INSTANTIATE(float);
MR_INSTANTIATE(double);
MR_INSTANTIATE(std::complex<float>);
MR_INSTANTIATE(std::complex<double>);
#undef MR_INSTANTIATE

}  // namespace millrace::linalg
