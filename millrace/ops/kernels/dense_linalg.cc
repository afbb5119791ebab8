#include "millrace/ops/kernels/dense_linalg.h"

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <complex>

namespace millrace::linalg {
namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

}  // namespace

template <typename T>
bool Solve(const T* a, int64_t n, bool adjoint, const T* rhs, int64_t columns, T* x) {
  if (n == 0) return true;
  const Eigen::Map<const Matrix<T>> matrix(a, n, n);
  Matrix<T> taken = matrix;
  if (adjoint) taken = matrix.adjoint();
  const Eigen::PartialPivLU<Matrix<T>> lu(taken);
  if (!(lu.matrixLU().diagonal().cwiseAbs().minCoeff() > 0)) return false;
  Eigen::Map<Matrix<T>>(x, n, columns) = lu.solve(Eigen::Map<const Matrix<T>>(rhs, n, columns));
  return true;
}

template <typename T>
T Determinant(const T* a, int64_t n) {
  if (n == 0) return T(1);
  return Eigen::PartialPivLU<Matrix<T>>(Eigen::Map<const Matrix<T>>(a, n, n)).determinant();
}

template <typename T>
bool Cholesky(const T* a, int64_t n, T* l) {
  if (n == 0) return true;
  const Eigen::LLT<Matrix<T>> llt(Eigen::Map<const Matrix<T>>(a, n, n));
  Eigen::Map<Matrix<T>>(l, n, n) = llt.matrixL();
  return llt.info() == Eigen::Success;
}

#define MR_INSTANTIATE(T)                                                     \
  template bool Solve<T>(const T*, int64_t, bool, const T*, int64_t, T*);     \
  template T Determinant<T>(const T*, int64_t);                               \
  template bool Cholesky<T>(const T*, int64_t, T*)
MR_INSTANTIATE(float);
MR_INSTANTIATE(double);
MR_INSTANTIATE(std::complex<float>);
MR_INSTANTIATE(std::complex<double>);
#undef MR_INSTANTIATE

}  // namespace millrace::linalg
