// A compiled reduction and how it is launched.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/types/span.h"
#include "millrace/base/mutex.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/reduction_program.h"
#include "millrace/ops/kernels/reduce.h"

namespace millrace {

// Thread-safe.
class GpuReduction {
 public:
  // Compiles it, so that an error comes before the first step.
  Status Init(const ReductionProgram& program, DType dtype, int ordinal);

  // Reduces `in`, whose dimensions are those of `runs`, to `out`.
  Status Run(const CudaCall& call, absl::Span<const ReduceAxes::Run> runs, const Tensor& in, Tensor* out) const;

 private:
  // In accumulators of this size.
  size_t acc_size_ = 0;
  cudaKernel_t whole_ = nullptr, pieces_ = nullptr, join_ = nullptr;
};

}  // namespace millrace
