// Batches of matrices in the last two dimensions of a tensor.
#pragma once

#include <complex>
#include <limits>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace::linalg {

using LinalgTypes = Types<float, double, std::complex<float>, std::complex<double>>;

struct MatrixBatch {
  Shape lead;
  int64_t count = 0, rows = 0, columns = 0;

  static StatusOr<MatrixBatch> Of(const Tensor& t) {
    if (t.rank() < 2) return InvalidArgument("Input tensor must have rank >= 2, got rank ", t.rank());
    MatrixBatch b;
    b.lead = Shape(t.shape().dims().subspan(0, t.rank() - 2));
    b.rows = t.dim(t.rank() - 2);
    b.columns = t.dim(t.rank() - 1);
    if (std::max(b.rows, b.columns) > std::numeric_limits<int>::max()) {
      return InvalidArgument("Matrices of ", b.rows, " rows and ", b.columns, " columns are too large for LAPACK");
    }
    b.count = b.lead.num_elements();
    return b;
  }
  // The batch's shape with matrices of r x c.
  StatusOr<Shape> With(int64_t r, int64_t c) const {
    Shape shape = lead;
    shape.AddDim(r);
    shape.AddDim(c);
    return Shape::Make(shape.dims());
  }
};

// The type of computations: narrow types gain precision.
template <typename T>
using WideType = std::conditional_t<kIsComplex<T>, std::complex<double>, double>;

// Converts matrix i of a tensor (row-major) to the wide type, and back.
template <typename T>
void WidenAt(const Tensor& t, int64_t i, std::vector<WideType<T>>* wide) {
  const T* const from = t.data<T>() + i * static_cast<int64_t>(wide->size());
  for (size_t k = 0; k < wide->size(); ++k) (*wide)[k] = static_cast<WideType<T>>(from[k]);
}
template <typename T>
std::vector<WideType<T>> WideAt(const Tensor& t, int64_t i, int64_t rows, int64_t columns) {
  std::vector<WideType<T>> wide(rows * columns);
  WidenAt<T>(t, i, &wide);
  return wide;
}
template <typename T>
void StoreAt(const std::vector<WideType<T>>& wide, int64_t i, Tensor* t) {
  T* const to = t->data<T>() + i * static_cast<int64_t>(wide.size());
  for (size_t k = 0; k < wide.size(); ++k) {
    if constexpr (kIs16BitFloat<T>) {
      to[k] = static_cast<T>(static_cast<float>(wide[k]));
    } else {
      to[k] = static_cast<T>(wide[k]);
    }
  }
}

inline void NeedLinalgType(KernelInit& init) {
  if (!DispatchType(LinalgTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
}

// For gradients that depend on the number of rows and columns of input 0: infers shapes again if the graph has none.
// UNIMPLEMENTED if they remain unknown.
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
