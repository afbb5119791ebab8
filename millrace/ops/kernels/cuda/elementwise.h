// Element-wise work on a GPU, as the host calls it. Also what nvcc sees: no other header of Millrace.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace millrace {
namespace cuda {

enum class ElementType {
  kFloat, kDouble, kHalf, kBfloat16, kInt8, kInt16, kInt32, kInt64, kComplex64, kComplex128
};

enum class BinaryFn { kAdd, kSub, kMul };

// How two operands meet: along each dimension of the result, how far an operand moves with one step (0: it
// is broadcast). Elements of the result are in row-major order.
struct BinaryPlan {
  static constexpr int kMaxRank = 12;
  int rank = 0;
  int64_t size[kMaxRank];
  int64_t a_step[kMaxRank];
  int64_t b_step[kMaxRank];
  int64_t num_elements = 0;
};

// out = fn(a, b). `out` may be an operand that is not broadcast. 16-bit floats are computed as float and
// rounded once; integers wrap.
cudaError_t LaunchBinary(BinaryFn fn, ElementType type, const BinaryPlan& plan, const void* a, const void* b,
                         void* out, cudaStream_t stream);

// to = from - alpha * delta, alpha being one element on the device. `to` may be `from`. No integers.
cudaError_t LaunchDescend(ElementType type, int64_t n, const void* from, const void* alpha, const void* delta,
                          void* to, cudaStream_t stream);

}  // namespace cuda
}  // namespace millrace
