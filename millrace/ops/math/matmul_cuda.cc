// MatMul on a GPU, by cuBLAS.
#include <complex>

#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The cuBLAS operand type, compute type, and 1 and 0 in that type. TF32 is not used for float, so results match the
// CPU's up to the order of additions.
struct GemmType {
  cudaDataType_t data;
  cublasComputeType_t compute;
  const void* one;
  const void* zero;
};

template <typename T>
GemmType TypeOf(cudaDataType_t data, cublasComputeType_t compute) {
  static const T one(1), zero(0);
  return {data, compute, &one, &zero};
}

std::optional<GemmType> GemmTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return TypeOf<float>(CUDA_R_32F, CUBLAS_COMPUTE_32F);
    case DType::kDouble:
      return TypeOf<double>(CUDA_R_64F, CUBLAS_COMPUTE_64F);
    case DType::kHalf:
      return TypeOf<float>(CUDA_R_16F, CUBLAS_COMPUTE_32F);
    case DType::kBFloat16:
      return TypeOf<float>(CUDA_R_16BF, CUBLAS_COMPUTE_32F);
    case DType::kComplex64:
      return TypeOf<std::complex<float>>(CUDA_C_32F, CUBLAS_COMPUTE_32F);
    case DType::kComplex128:
      return TypeOf<std::complex<double>>(CUDA_C_64F, CUBLAS_COMPUTE_64F);
    default:
      return std::nullopt;
  }
}

class CudaMatMulKernel : public Kernel {
 public:
  explicit CudaMatMulKernel(KernelInit& init) : type_(GemmTypeOf(init.output_type(0))) {
    init.Attr("transpose_a", &transpose_a_);
    init.Attr("transpose_b", &transpose_b_);
    if (!type_) FailDType(init, init.output_type(0));
    // Without the library, an error before the first step, which names this node.
    if (const Status status = Cublas::Get().status(); !status.ok()) init.Fail(status);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& a = ctx.input(0);
    const Tensor& b = ctx.input(1);
    if (a.rank() != 2 || b.rank() != 2) {
      return InvalidArgument("a matrix product needs two matrices, but a has shape ", a.shape().ToString(), " and b ",
                             b.shape().ToString());
    }
    const int64_t m = a.dim(transpose_a_ ? 1 : 0), n = b.dim(transpose_b_ ? 0 : 1);
    const int64_t k = a.dim(transpose_a_ ? 0 : 1);
    if (k != b.dim(transpose_b_ ? 1 : 0)) {
      return InvalidArgument("inner dimensions of a matrix product differ: a has shape ", a.shape().ToString(),
                             transpose_a_ ? " (transposed)" : "", ", b ", b.shape().ToString(),
                             transpose_b_ ? " (transposed)" : "");
    }
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(const void* x, call.Input(0));
    MR_ASSIGN_OR_RETURN(const void* y, call.Input(1));
    MR_ASSIGN_OR_RETURN(Tensor * product, call.Output(0, Shape({m, n})));
    if (product->num_elements() == 0) return absl::OkStatus();
    if (k == 0) {
      return call.Launched("cudaMemsetAsync",
                           cudaMemsetAsync(product->raw_data(), 0, product->TotalBytes(), call.stream()));
    }
    // cuBLAS is column-major, so compute the transposed product of the swapped operands.
    return call.gpu()->WithCublas([&](const Cublas& cublas, cublasHandle_t handle) {
      return CublasStatus(
          cublas.cublasGemmEx_64(handle, transpose_b_ ? CUBLAS_OP_T : CUBLAS_OP_N,
                                 transpose_a_ ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, type_->one, y, type_->data,
                                 b.dim(1), x, type_->data, a.dim(1), type_->zero, product->raw_data(), type_->data, n,
                                 type_->compute, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx", call.gpu()->name());
    });
  }

 private:
  const std::optional<GemmType> type_;
  bool transpose_a_ = false;
  bool transpose_b_ = false;
};

MILLRACE_KERNEL_OF(MatMul, kCuda, ({"T", CudaFloats()}), CudaMatMulKernel);

}  // namespace
}  // namespace millrace
