// Element-wise passes of the nn kernels: half and bfloat16 are computed as float, block by block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "millrace/runtime/kernel.h"
#include "millrace/tensor/half.h"

namespace millrace {

// The type in which elements of type T are computed.
template <typename T>
using ComputeType = std::conditional_t<std::is_same_v<T, half> || std::is_same_v<T, bfloat16>, float, T>;

// Elements per piece, enough to be worth another thread.
inline constexpr int64_t kElementGrain = 16384;
inline constexpr int64_t kConvertBlock = 256;

template <typename T>
void Widen(const T* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}
template <typename T>
void Narrow(const float* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = T(x[i]);
}

// Calls fn(x, y, n) on pieces; x and y point to ComputeType<T>. y may alias x.
template <typename T, typename Fn>
void MapElements(KernelContext& ctx, const T* x, T* y, int64_t total, Fn fn) {
  ctx.ParallelFor(total, kElementGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, ComputeType<T>>) {
      fn(x + begin, y + begin, end - begin);
    } else {
      float in[kConvertBlock], out[kConvertBlock];
      for (int64_t i = begin; i < end; i += kConvertBlock) {
        const int64_t n = std::min(kConvertBlock, end - i);
        Widen(x + i, in, n);
        fn(in, out, n);
        Narrow(out, y + i, n);
      }
    }
  });
}

// The same with two operands: fn(a, b, y, n).
template <typename T, typename Fn>
void MapElements(KernelContext& ctx, const T* a, const T* b, T* y, int64_t total, Fn fn) {
  ctx.ParallelFor(total, kElementGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, ComputeType<T>>) {
      fn(a + begin, b + begin, y + begin, end - begin);
    } else {
      float in_a[kConvertBlock], in_b[kConvertBlock], out[kConvertBlock];
      for (int64_t i = begin; i < end; i += kConvertBlock) {
        const int64_t n = std::min(kConvertBlock, end - i);
        Widen(a + i, in_a, n);
        Widen(b + i, in_b, n);
        fn(in_a, in_b, out, n);
        Narrow(out, y + i, n);
      }
    }
  });
}

}  // namespace millrace
