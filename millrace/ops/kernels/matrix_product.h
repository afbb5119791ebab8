// Batched matrix products of all supported types.
#pragma once

#include <vector>

#include "millrace/base/status.h"
#include "millrace/ops/kernels/gemm.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// One product in a batch: the indices of its two matrices.
struct MatrixPair {
  int64_t a, b;
};

// Complex matrices may be conjugated, as the adjoint needs.
struct ProductOptions {
  bool conjugate_a = false;
  bool conjugate_b = false;
};

// c[i] = op(a[pairs[i].a]) op(b[pairs[i].b]) for all i. The tensors have one dtype: float, double, half,
// bfloat16, int16, int32, int64, complex64 or complex128; half and bfloat16 are multiplied as float.
Status MatrixProducts(KernelContext& ctx, const GemmShape& shape, absl::Span<const MatrixPair> pairs, const Tensor& a,
                      const Tensor& b, Tensor* c, const ProductOptions& options = {});

// The shape of op(a) op(b). INVALID_ARGUMENT unless they are matrices of matching sizes.
StatusOr<GemmShape> ShapeOfProduct(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b);

bool HasMatrixProduct(DType dtype);

// `x` as float, converted to scratch memory unless it is float already.
StatusOr<Tensor> AsFloat(KernelContext& ctx, const Tensor& x);
// Converts float to y's type; y has as many elements.
void FromFloat(KernelContext& ctx, const Tensor& x, Tensor* y);

}  // namespace millrace
