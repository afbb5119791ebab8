#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "tables.h"
#include "timing.h"

namespace gpu_ceilings {
namespace {

void Check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

// As cuBLAS counts: column-major, D (m x n) = op(A) (m x k) * op(B) (k x n), `batch` times.
struct Product {
  std::string name;
  bool transpose_a, transpose_b;
  int64_t m, n, k, batch = 1;
};

// Row-major y[t, out] = x[t, in] * w[in, out], and the two products of its gradient.
void AddLayer(const std::string& name, int64_t t, int64_t in, int64_t out, std::vector<Product>* all) {
  all->push_back({name, false, false, out, t, in});
  all->push_back({name + ", gradient of the input", true, false, in, t, out});
  all->push_back({name + ", gradient of the weights", false, true, out, in, t});
}

std::vector<Product> ProductsOfGpt2() {
  const int64_t tokens = 8 * 1024, width = 768, vocabulary = 50304, heads = 8 * 12, length = 1024, head = 64;
  std::vector<Product> all;
  AddLayer("query, key and value", tokens, width, 3 * width, &all);
  AddLayer("projection", tokens, width, width, &all);
  AddLayer("feed-forward in", tokens, width, 4 * width, &all);
  AddLayer("feed-forward out", tokens, 4 * width, width, &all);
  AddLayer("logits", tokens, width, vocabulary, &all);
  all.push_back({"scores, 96 heads", true, false, length, length, head, heads});
  all.push_back({"values, 96 heads", false, false, head, length, length, heads});
  return all;
}

class Lt {
 public:
  Lt() {
    gpu_ceilings::Check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    Check(cublasLtCreate(&handle_), "cublasLtCreate");
    gpu_ceilings::Check(cudaMalloc(&workspace_, kWorkspace), "cudaMalloc");
    for (void*& each : memory_) each = RandomMemory(size_t{1} << 30);
  }

  // Microseconds of the best of eight algorithms.
  double Time(const Product& of, cudaDataType_t type, cublasComputeType_t compute) {
    cublasLtMatmulDesc_t product;
    Check(cublasLtMatmulDescCreate(&product, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    SetTranspose(product, CUBLASLT_MATMUL_DESC_TRANSA, of.transpose_a);
    SetTranspose(product, CUBLASLT_MATMUL_DESC_TRANSB, of.transpose_b);
    const cublasLtMatrixLayout_t a = Layout(type, of.transpose_a ? of.k : of.m, of.transpose_a ? of.m : of.k, of.batch);
    const cublasLtMatrixLayout_t b = Layout(type, of.transpose_b ? of.n : of.k, of.transpose_b ? of.k : of.n, of.batch);
    const cublasLtMatrixLayout_t d = Layout(type, of.m, of.n, of.batch);
    cublasLtMatmulPreference_t preference;
    Check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    Check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                               sizeof(kWorkspace)),
          "workspace");
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    Check(cublasLtMatmulAlgoGetHeuristic(handle_, product, a, b, d, d, preference, 8, found, &count), "heuristics");
    double best = 0;
    const float one = 1, zero = 0;
    for (int i = 0; i < count; ++i) {
      const double microseconds = MicrosecondsOf(stream_, [&] {
        Check(cublasLtMatmul(handle_, product, &one, memory_[0], a, memory_[1], b, &zero, memory_[2], d, memory_[2], d,
                             &found[i].algo, workspace_, kWorkspace, stream_),
              "cublasLtMatmul");
      });
      if (best == 0 || microseconds < best) best = microseconds;
    }
    return best;
  }

 private:
  static constexpr size_t kWorkspace = 32 << 20;

  static void SetTranspose(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t which, bool transpose) {
    const cublasOperation_t operation = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    Check(cublasLtMatmulDescSetAttribute(product, which, &operation, sizeof(operation)), "transpose");
  }
  static cublasLtMatrixLayout_t Layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch) {
    cublasLtMatrixLayout_t layout;
    Check(cublasLtMatrixLayoutCreate(&layout, type, rows, columns, rows), "cublasLtMatrixLayoutCreate");
    const int32_t count = static_cast<int32_t>(batch);
    const int64_t stride = rows * columns;
    Check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), "batch");
    Check(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
        "stride");
    return layout;
  }

  cudaStream_t stream_;
  cublasLtHandle_t handle_;
  void* workspace_;
  void* memory_[3];
};

}  // namespace

void PrintProducts() {
  Lt lt;
  std::printf("## GPT-2's matrix products (124 M, 8 x 1,024 tokens)\n\n");
  std::printf("| product | m, n, k | bfloat16 | TF32 | float |\n|---|---|---|---|---|\n");
  for (const Product& of : ProductsOfGpt2()) {
    const double flops = 2.0 * of.m * of.n * of.k * of.batch;
    std::printf("| %s | %d, %d, %d |", of.name.c_str(), static_cast<int>(of.m), static_cast<int>(of.n),
                static_cast<int>(of.k));
    for (const auto& [type, compute] :
         {std::pair(CUDA_R_16BF, CUBLAS_COMPUTE_32F), std::pair(CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32),
          std::pair(CUDA_R_32F, CUBLAS_COMPUTE_32F)}) {
      const double bytes = 4.0 * of.batch * std::max({of.m * of.k, of.k * of.n, of.m * of.n});
      if (type == CUDA_R_32F && bytes > (1 << 30)) {
        std::printf(" |");  // larger than the buffers
        continue;
      }
      const double microseconds = lt.Time(of, type, compute);
      std::printf(" %.0f us, %.0f TFLOP/s |", microseconds, flops / microseconds / 1e6);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("\n");
}

}  // namespace gpu_ceilings
