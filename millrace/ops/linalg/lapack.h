// LAPACK and BLAS for the four types they know: float, double, complex64 and complex128.
//
// Each function is the routine of the same name without its type letter (Getrf is sgetrf, dgetrf, cgetrf or zgetrf),
// with LAPACK's conventions: matrices are column-major with a leading dimension, a row-major matrix is therefore its
// transpose, and an int result is LAPACK's `info` (0: success). Work space is allocated inside. The library is
// single-threaded, so that results do not depend on the number of threads. Dimensions fit into an int; MatrixBatch
// checks that.
#pragma once

#include <complex>
#include <vector>

namespace millrace::linalg {

// The functions below have one overload for each of the four types. T stands for the type:
//
// a = p l u in place, for an m x n matrix; a positive result names a pivot that is exactly zero.
//   int Getrf(int m, int n, T* a, int lda, int* pivots)
//
// Solves op(a) x = b in place of b, after Getrf; op by `transposed`: 'N', 'T' or 'C'.
//   void Getrs(char transposed, int n, int columns, const T* lu, int lda, const int* pivots, T* b, int ldb)
//
// The Cholesky factor in the triangle `uplo` ('L' or 'U') of a; positive when a is not positive definite.
//   int Potrf(char uplo, int n, T* a, int lda)
//
// Solves a x = b in place of b, after Potrf.
//   void Potrs(char uplo, int n, int columns, const T* factor, int lda, T* b, int ldb)
//
// a = q r in place, for an m x n matrix: r in the upper triangle, q as `reflectors` reflections below it and in tau.
//   void Geqrf(int m, int n, T* a, int lda, T* tau)
//
// The first `columns` columns of q, in place of what Geqrf left in them.
//   void Orgqr(int m, int columns, int reflectors, T* a, int lda, const T* tau)
//
// The x of least norm that minimises |a x - b|, in the first n rows of b, which has max(m, n) rows; both are
// overwritten. Singular values below rcond times the largest count as zero.
//   void Gelsy(int m, int n, int columns, T* a, int lda, T* b, int ldb, double rcond)
//
// Solves op(a) x = b (side 'L') or x op(a) = b (side 'R') in place of b, for a triangular a; b is m x n.
//   void Trsm(char side, char uplo, char transposed, int m, int n, const T* a, int lda, T* b, int ldb)
//
// c = op(a) op(b), where op(a) is m x k and op(b) is k x n.
//   void Gemm(char transposed_a, char transposed_b, int m, int n, int k, const T* a, int lda, const T* b, int ldb, T*
//   c, int ldc)
#define MR_DECLARE_LAPACK(T)                                                                                           \
  int Getrf(int m, int n, T* a, int lda, int* pivots);                                                                 \
  void Getrs(char transposed, int n, int columns, const T* lu, int lda, const int* pivots, T* b, int ldb);             \
  int Potrf(char uplo, int n, T* a, int lda);                                                                          \
  void Potrs(char uplo, int n, int columns, const T* factor, int lda, T* b, int ldb);                                  \
  void Geqrf(int m, int n, T* a, int lda, T* tau);                                                                     \
  void Orgqr(int m, int columns, int reflectors, T* a, int lda, const T* tau);                                         \
  void Gelsy(int m, int n, int columns, T* a, int lda, T* b, int ldb, double rcond);                                   \
  void Trsm(char side, char uplo, char transposed, int m, int n, const T* a, int lda, T* b, int ldb);                  \
  void Gemm(char transposed_a, char transposed_b, int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c, \
            int ldc);
MR_DECLARE_LAPACK(float)
MR_DECLARE_LAPACK(double)
MR_DECLARE_LAPACK(std::complex<float>)
MR_DECLARE_LAPACK(std::complex<double>)
#undef MR_DECLARE_LAPACK

// to (columns x rows) = the transpose of from (rows x columns); both row-major, and both column-major is the same.
template <typename T>
void Transpose(const T* from, int rows, int columns, T* to) {
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j)
      to[static_cast<size_t>(j) * rows + i] = from[static_cast<size_t>(i) * columns + j];
  }
}

}  // namespace millrace::linalg
