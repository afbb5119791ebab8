// Batches of matrices in the last two dimensions of a tensor.
#pragma once

#include <Eigen/Core>
#include <complex>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace::linalg {

using LinalgTypes = Types<float, double, std::complex<float>, std::complex<double>>;

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct MatrixBatch {
  Shape lead;
  int64_t count = 0, rows = 0, columns = 0;

  static StatusOr<MatrixBatch> Of(const Tensor& t) {
    if (t.rank() < 2) return InvalidArgument("Input tensor must have rank >= 2, got rank ", t.rank());
    MatrixBatch b;
    b.lead = Shape(t.shape().dims().subspan(0, t.rank() - 2));
    b.rows = t.dim(t.rank() - 2);
    b.columns = t.dim(t.rank() - 1);
    b.count = b.lead.num_elements();
    return b;
  }
  // The batch's shape with other matrices.
  StatusOr<Shape> With(int64_t r, int64_t c) const {
    Shape shape = lead;
    shape.AddDim(r);
    shape.AddDim(c);
    return Shape::Make(shape.dims());
  }
};

// What is computed in: two types are quicker to compile than five, and the narrow ones gain digits.
template <typename T>
using WideType = std::conditional_t<kIsComplex<T>, std::complex<double>, double>;

// Matrix i of a tensor in the wide type, and back.
template <typename T>
void WidenAt(const Tensor& t, int64_t i, Matrix<WideType<T>>* wide) {
  const T* const from = t.data<T>() + i * wide->size();
  WideType<T>* const to = wide->data();
  const int64_t n = wide->size();
  for (int64_t k = 0; k < n; ++k) to[k] = static_cast<WideType<T>>(from[k]);
}
template <typename T>
Matrix<WideType<T>> WideAt(const Tensor& t, int64_t i, int64_t rows, int64_t columns) {
  Matrix<WideType<T>> wide(rows, columns);
  WidenAt<T>(t, i, &wide);
  return wide;
}
template <typename T>
void StoreAt(const Matrix<WideType<T>>& wide, int64_t i, Tensor* t) {
  T* to = t->data<T>() + i * wide.size();
  for (int64_t k = 0; k < wide.size(); ++k) {
    if constexpr (kIs16BitFloat<T>) {
      to[k] = static_cast<T>(static_cast<float>(wide.data()[k]));
    } else {
      to[k] = static_cast<T>(wide.data()[k]);
    }
  }
}

inline void NeedLinalgType(KernelInit& init) {
  if (!DispatchType(LinalgTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
}

// For gradients that differ by the number of rows and columns of input 0: looks again where the graph came without shapes.
// UNIMPLEMENTED when they cannot be known.
inline Status NeedMatrixShape(GradientContext& c) {
  const auto known = [&] {
    const PartialShape& s = c.input(0).shape();
    return s.known_rank() && s.rank() >= 2 && s.dim(s.rank() - 1) >= 0 && s.dim(s.rank() - 2) >= 0;
  };
  if (!known()) MR_RETURN_IF_ERROR(InferShapes(c.graph(), /*lenient=*/true));
  if (known()) return absl::OkStatus();
  return Unimplemented("the gradient of ", c.node()->op().name, " needs the number of rows and columns to be known");
}

// For gradients: x y with either adjoint.
inline Endpoint Product(GradientContext& c, Endpoint x, Endpoint y, bool adjoint_x = false, bool adjoint_y = false) {
  return c.Op("BatchMatMulV2", {x, y}, {{"adj_x", adjoint_x}, {"adj_y", adjoint_y}});
}
inline Endpoint BandPart(GradientContext& c, Endpoint x, int64_t below, int64_t above) {
  return c.Op("MatrixBandPart", {x, c.Scalar<int64_t>(below), c.Scalar<int64_t>(above)});
}
// x^H.
inline Endpoint Adjoint(GradientContext& c, Endpoint x) {
  // The product with a unit matrix of the right size.
  const Endpoint ones = c.OnesLike(c.Op("MatrixDiagPart", {Product(c, x, x, false, true)}));
  return Product(c, x, c.Op("MatrixDiag", {ones}), true);
}

}  // namespace millrace::linalg
