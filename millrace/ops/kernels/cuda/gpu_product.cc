#include "millrace/ops/kernels/cuda/gpu_product.h"

#include <complex>

#include "millrace/device/cuda/gpu_math.h"

namespace millrace {
namespace {

std::optional<cudaDataType_t> CublasType(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return CUDA_R_32F;
    case DType::kDouble:
      return CUDA_R_64F;
    case DType::kHalf:
      return CUDA_R_16F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kComplex64:
      return CUDA_C_32F;
    case DType::kComplex128:
      return CUDA_C_64F;
    default:
      return std::nullopt;
  }
}

template <typename T>
std::pair<const void*, const void*> OneAndZero() {
  static const T one(1), zero(0);
  return {&one, &zero};
}

}  // namespace

std::optional<GpuProduct> GpuProduct::Of(DType in, DType out) {
  const std::optional<cudaDataType_t> from = CublasType(in), to = CublasType(out);
  const bool narrow = in == DType::kHalf || in == DType::kBFloat16;
  if (!from || !to || (in != out && !(narrow && out == DType::kFloat))) return std::nullopt;
  GpuProduct product;
  product.in_ = *from;
  product.out_ = *to;
  product.out_size_ = static_cast<int64_t>(SizeOf(out));
  const bool is_double = in == DType::kDouble || in == DType::kComplex128;
  const bool tf32 = (in == DType::kFloat || in == DType::kComplex64) && GpuMath::FromEnvironment().tf32;
  product.compute_ = is_double ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  std::tie(product.one_, product.zero_) = in == DType::kDouble       ? OneAndZero<double>()
                                          : in == DType::kComplex64  ? OneAndZero<std::complex<float>>()
                                          : in == DType::kComplex128 ? OneAndZero<std::complex<double>>()
                                                                     : OneAndZero<float>();
  return product;
}

Status GpuProduct::Run(const CudaCall& call, const GemmShape& shape, const void* a, const void* b, void* c,
                       const Batch& batch) const {
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  if (k == 0) {
    const int64_t last = (batch.count - 1) * batch.step_c + m * n;
    return call.Launched("cudaMemsetAsync", cudaMemsetAsync(c, 0, last * out_size_, call.stream()));
  }
  const bool adjoint = batch.conjugate && (in_ == CUDA_C_32F || in_ == CUDA_C_64F);
  const cublasOperation_t other = adjoint ? CUBLAS_OP_C : CUBLAS_OP_T;
  // cuBLAS is column-major: the transposed product of the swapped operands.
  const cublasOperation_t op_b = shape.transpose_b ? other : CUBLAS_OP_N,
                          op_a = shape.transpose_a ? other : CUBLAS_OP_N;
  return call.gpu()->WithCublas([&](const Cublas& cublas, cublasHandle_t handle) {
    if (batch.count == 1) {
      return CublasStatus(cublas.cublasGemmEx_64(handle, op_b, op_a, n, m, k, one_, b, in_, shape.ldb(), a, in_,
                                                 shape.lda(), zero_, c, out_, n, compute_, CUBLAS_GEMM_DEFAULT),
                          "cublasGemmEx", call.gpu()->name());
    }
    return CublasStatus(cublas.cublasGemmStridedBatchedEx_64(
                            handle, op_b, op_a, n, m, k, one_, b, in_, shape.ldb(), batch.step_b, a, in_, shape.lda(),
                            batch.step_a, zero_, c, out_, n, batch.step_c, batch.count, compute_, CUBLAS_GEMM_DEFAULT),
                        "cublasGemmStridedBatchedEx", call.gpu()->name());
  });
}

}  // namespace millrace
