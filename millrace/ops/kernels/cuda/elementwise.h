// Launchers of element-wise GPU kernels. Compiled by nvcc too, so it includes no other Millrace header.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace millrace {
namespace cuda {

enum class ElementType { kFloat, kDouble, kHalf, kBfloat16, kInt8, kInt16, kInt32, kInt64, kComplex64, kComplex128 };

enum class BinaryFn { kAdd, kSub, kMul };

// The strides of two operands along each dimension of the result (0 means broadcast). The result is in row-major order.
struct BinaryPlan {
  static constexpr int kMaxRank = 12;
  int rank = 0;
  int64_t size[kMaxRank];
  int64_t a_step[kMaxRank];
  int64_t b_step[kMaxRank];
  int64_t num_elements = 0;
};

// out = fn(a, b). `out` may alias an operand that is not broadcast. 16-bit floats are computed as float and rounded
// once; integers wrap.
cudaError_t LaunchBinary(BinaryFn fn, ElementType type, const BinaryPlan& plan, const void* a, const void* b, void* out,
                         cudaStream_t stream);

// to = from - alpha * delta, where alpha is one element in device memory. `to` may alias `from`. Not for integers.
cudaError_t LaunchDescend(ElementType type, int64_t n, const void* from, const void* alpha, const void* delta, void* to,
                          cudaStream_t stream);

}  // namespace cuda
}  // namespace millrace
