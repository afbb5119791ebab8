#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "millrace/ops/kernels/cuda/elementwise.h"

namespace millrace {
namespace cuda {
namespace {

constexpr int kThreads = 256;
// Blocks beyond this many add nothing: each thread goes on to further elements.
constexpr int64_t kMaxBlocks = 132 * 16;

int Blocks(int64_t n) {
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return static_cast<int>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

template <typename R>
struct Complex {
  R re, im;
};
template <typename R>
__device__ Complex<R> operator+(Complex<R> a, Complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename R>
__device__ Complex<R> operator-(Complex<R> a, Complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename R>
__device__ Complex<R> operator*(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// What elements are computed in: 16-bit floats as float, integers so that they wrap.
template <typename T>
struct Widened {
  using type = T;
};
template <>
struct Widened<__half> {
  using type = float;
};
template <>
struct Widened<__nv_bfloat16> {
  using type = float;
};
template <>
struct Widened<int8_t> {
  using type = uint32_t;
};
template <>
struct Widened<int16_t> {
  using type = uint32_t;
};
template <>
struct Widened<int32_t> {
  using type = uint32_t;
};
template <>
struct Widened<int64_t> {
  using type = uint64_t;
};
template <typename T>
using Wide = typename Widened<T>::type;

template <BinaryFn kFn, typename T>
__device__ T Apply(T x, T y) {
  const Wide<T> a = static_cast<Wide<T>>(x), b = static_cast<Wide<T>>(y);
  if constexpr (kFn == BinaryFn::kAdd) return static_cast<T>(a + b);
  if constexpr (kFn == BinaryFn::kSub) return static_cast<T>(a - b);
  if constexpr (kFn == BinaryFn::kMul) return static_cast<T>(a * b);
}

// One run: each operand moves by one element or stands.
template <BinaryFn kFn, typename T>
__global__ void RunKernel(const T* a, int a_step, const T* b, int b_step, T* out, int64_t n) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    out[i] = Apply<kFn>(a[i * a_step], b[i * b_step]);
  }
}

template <BinaryFn kFn, typename T, typename Index>
__global__ void BroadcastKernel(BinaryPlan plan, const T* a, const T* b, T* out) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < plan.num_elements; i += stride) {
    Index rest = static_cast<Index>(i);
    int64_t at_a = 0, at_b = 0;
    for (int d = plan.rank - 1; d >= 0; --d) {
      const Index size = static_cast<Index>(plan.size[d]);
      const Index next = rest / size;
      const Index at = rest - next * size;
      at_a += static_cast<int64_t>(at) * plan.a_step[d];
      at_b += static_cast<int64_t>(at) * plan.b_step[d];
      rest = next;
    }
    out[i] = Apply<kFn>(a[at_a], b[at_b]);
  }
}

template <typename T>
__global__ void DescendKernel(int64_t n, const T* from, const T* alpha, const T* delta, T* to) {
  const Wide<T> rate = static_cast<Wide<T>>(alpha[0]);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    to[i] = static_cast<T>(static_cast<Wide<T>>(from[i]) - static_cast<Wide<T>>(delta[i]) * rate);
  }
}

template <BinaryFn kFn, typename T>
void LaunchOf(const BinaryPlan& plan, const void* a, const void* b, void* out, cudaStream_t stream) {
  const int64_t n = plan.num_elements;
  const T* const x = static_cast<const T*>(a);
  const T* const y = static_cast<const T*>(b);
  T* const z = static_cast<T*>(out);
  if (plan.rank <= 1) {
    const int x_step = plan.rank == 0 ? 0 : static_cast<int>(plan.a_step[0]);
    const int y_step = plan.rank == 0 ? 0 : static_cast<int>(plan.b_step[0]);
    RunKernel<kFn, T><<<Blocks(n), kThreads, 0, stream>>>(x, x_step, y, y_step, z, n);
  } else if (n < (int64_t{1} << 31)) {
    BroadcastKernel<kFn, T, uint32_t><<<Blocks(n), kThreads, 0, stream>>>(plan, x, y, z);
  } else {
    BroadcastKernel<kFn, T, uint64_t><<<Blocks(n), kThreads, 0, stream>>>(plan, x, y, z);
  }
}

template <typename T>
void LaunchFn(BinaryFn fn, const BinaryPlan& plan, const void* a, const void* b, void* out, cudaStream_t stream) {
  switch (fn) {
    case BinaryFn::kAdd:
      return LaunchOf<BinaryFn::kAdd, T>(plan, a, b, out, stream);
    case BinaryFn::kSub:
      return LaunchOf<BinaryFn::kSub, T>(plan, a, b, out, stream);
    case BinaryFn::kMul:
      return LaunchOf<BinaryFn::kMul, T>(plan, a, b, out, stream);
  }
}

template <typename T>
void LaunchDescendOf(int64_t n, const void* from, const void* alpha, const void* delta, void* to, cudaStream_t stream) {
  DescendKernel<T><<<Blocks(n), kThreads, 0, stream>>>(n, static_cast<const T*>(from), static_cast<const T*>(alpha),
                                                       static_cast<const T*>(delta), static_cast<T*>(to));
}

}  // namespace

cudaError_t LaunchBinary(BinaryFn fn, ElementType type, const BinaryPlan& plan, const void* a, const void* b, void* out,
                         cudaStream_t stream) {
  if (plan.num_elements == 0) return cudaSuccess;
  switch (type) {
    case ElementType::kFloat:
      LaunchFn<float>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kDouble:
      LaunchFn<double>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kHalf:
      LaunchFn<__half>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kBfloat16:
      LaunchFn<__nv_bfloat16>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kInt8:
      LaunchFn<int8_t>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kInt16:
      LaunchFn<int16_t>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kInt32:
      LaunchFn<int32_t>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kInt64:
      LaunchFn<int64_t>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kComplex64:
      LaunchFn<Complex<float>>(fn, plan, a, b, out, stream);
      break;
    case ElementType::kComplex128:
      LaunchFn<Complex<double>>(fn, plan, a, b, out, stream);
      break;
  }
  return cudaGetLastError();
}

cudaError_t LaunchDescend(ElementType type, int64_t n, const void* from, const void* alpha, const void* delta, void* to,
                          cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  switch (type) {
    case ElementType::kFloat:
      LaunchDescendOf<float>(n, from, alpha, delta, to, stream);
      break;
    case ElementType::kDouble:
      LaunchDescendOf<double>(n, from, alpha, delta, to, stream);
      break;
    case ElementType::kHalf:
      LaunchDescendOf<__half>(n, from, alpha, delta, to, stream);
      break;
    case ElementType::kBfloat16:
      LaunchDescendOf<__nv_bfloat16>(n, from, alpha, delta, to, stream);
      break;
    case ElementType::kComplex64:
      LaunchDescendOf<Complex<float>>(n, from, alpha, delta, to, stream);
      break;
    case ElementType::kComplex128:
      LaunchDescendOf<Complex<double>>(n, from, alpha, delta, to, stream);
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace cuda
}  // namespace millrace
