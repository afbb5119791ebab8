// cuBLAS, opened at run time.
#pragma once

#include <cublas_v2.h>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

// The functions in use. Their names are macros of cublas_v2.h, here and where they are called:
// blas->cublasCreate(&handle) is cublasCreate_v2.
#define MR_CUBLAS_FUNCTIONS(F) \
  F(cublasCreate)              \
  F(cublasDestroy)             \
  F(cublasSetStream)           \
  F(cublasSetWorkspace)        \
  F(cublasGetStatusString)     \
  F(cublasGemmEx_64)           \
  F(cublasGemmStridedBatchedEx_64)

struct Cublas {
#define MR_DECLARE(name) decltype(::name)* name = nullptr;
  MR_CUBLAS_FUNCTIONS(MR_DECLARE)
#undef MR_DECLARE

  // Opened by the first call; all others return the same, or the same error.
  static StatusOr<const Cublas*> Get();
};

// Like CudaStatus, for cuBLAS's codes.
Status CublasStatus(cublasStatus_t code, absl::string_view call, absl::string_view device);

}  // namespace millrace
