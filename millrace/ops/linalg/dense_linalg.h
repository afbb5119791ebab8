// Decompositions of square, dense, row-major matrices. T: float, double, complex64, complex128.
#pragma once

#include <cstdint>

#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace::linalg {

// x = op(a)^-1 rhs for a of n x n and rhs of n x columns; op is the adjoint if `adjoint`. Returns false if a is
// singular; x is then undefined.
template <typename T>
bool Solve(const T* a, int64_t n, bool adjoint, const T* rhs, int64_t columns, T* x);

template <typename T>
T Determinant(const T* a, int64_t n);

// The lower triangular l with l l^H = a, zeros above; only a's lower part is read. Returns false if a is not positive
// definite.
template <typename T>
bool Cholesky(const T* a, int64_t n, T* l);

// A tensor viewed as a batch of square matrices in its last two dimensions.
struct SquareBatch {
  int64_t count = 0;
  int64_t n = 0;
  // INVALID_ARGUMENT if it is not one.
  static StatusOr<SquareBatch> Of(const Tensor& t) {
    const int rank = t.rank();
    if (rank < 2) return InvalidArgument("Input tensor must have rank >= 2, got rank ", rank);
    if (t.dim(rank - 1) != t.dim(rank - 2)) {
      return InvalidArgument("Input matrix must be square, but got: ", t.dim(rank - 2), " != ", t.dim(rank - 1));
    }
    return SquareBatch{t.shape().Product(0, rank - 2), t.dim(rank - 1)};
  }
};

}  // namespace millrace::linalg
