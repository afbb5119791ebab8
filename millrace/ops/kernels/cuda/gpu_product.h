// Matrix products on a GPU, by cuBLAS.
#pragma once

#include <optional>

#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/gemm.h"

namespace millrace {

// The types of one product and how it is computed: 16-bit floats as float, float as TF32 if GpuMath says so.
class GpuProduct {
 public:
  // Null if cuBLAS has no such product. `out` may be float for products of 16-bit floats.
  static std::optional<GpuProduct> Of(DType in, DType out);

  // A batch of products, each `step` elements after the one before; a step of 0 repeats an operand.
  struct Batch {
    int64_t count = 1;
    int64_t step_a = 0, step_b = 0, step_c = 0;
    bool conjugate = false;  // transposed operands are adjoint
  };

  // c = op(a) op(b), without anything between rows. Enqueues only. c must not be empty.
  Status Run(const CudaCall& call, const GemmShape& shape, const void* a, const void* b, void* c,
             const Batch& batch) const;

 private:
  GpuProduct() = default;

  cudaDataType_t in_, out_;
  int64_t out_size_;
  cublasComputeType_t compute_;
  const void *one_, *zero_;
};

}  // namespace millrace
