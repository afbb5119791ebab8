// What every program that NVRTC compiles begins with: the types of elements, and what functors.h uses of the standard
// library. NVRTC reads it as text and finds no other headers; nothing else includes it.
#pragma once

using int64_t = long long;

#define MR_FN __device__ inline

namespace std {

template <typename T>
inline constexpr bool is_floating_point_v = false;
template <>
inline constexpr bool is_floating_point_v<float> = true;
template <>
inline constexpr bool is_floating_point_v<double> = true;

#define MR_FUNCTION(name)                                        \
  __device__ inline float name(float x) { return ::name##f(x); } \
  __device__ inline double name(double x) { return ::name(x); }
MR_FUNCTION(sqrt)
MR_FUNCTION(fabs)
MR_FUNCTION(exp)
MR_FUNCTION(expm1)
MR_FUNCTION(log)
MR_FUNCTION(log1p)
MR_FUNCTION(sin)
MR_FUNCTION(cos)
MR_FUNCTION(tanh)
#undef MR_FUNCTION
__device__ inline float abs(float x) { return ::fabsf(x); }
__device__ inline double abs(double x) { return ::fabs(x); }
__device__ inline float atan2(float y, float x) { return ::atan2f(y, x); }
__device__ inline double atan2(double y, double x) { return ::atan2(y, x); }

}  // namespace std

namespace millrace {

struct half {
  unsigned short bits;
};
struct bfloat16 {
  unsigned short bits;
};

template <typename R>
struct complex {
  R re, im;
  __device__ complex() {}
  __device__ complex(R real, R imaginary = 0) : re(real), im(imaginary) {}
};
template <typename R>
__device__ inline complex<R> operator+(complex<R> a, complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename R>
__device__ inline complex<R> operator-(complex<R> a, complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename R>
__device__ inline complex<R> operator-(complex<R> a) {
  return {-a.re, -a.im};
}
template <typename R>
__device__ inline complex<R> operator*(complex<R> a, complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

}  // namespace millrace

namespace std {
template <typename R>
__device__ inline millrace::complex<R> conj(millrace::complex<R> x) {
  return {x.re, -x.im};
}
}  // namespace std

namespace millrace {

template <typename T>
inline constexpr bool kHasParts = false;
template <typename R>
inline constexpr bool kHasParts<complex<R>> = true;

// 16-bit floats are computed as float and rounded once.
template <typename T>
__device__ inline T Widen(T x) {
  return x;
}
__device__ inline float Widen(half x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
__device__ inline float Widen(bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

template <typename To, typename From>
struct Narrowed {
  static __device__ To Of(From x) { return static_cast<To>(x); }
};
template <typename From>
struct Narrowed<bool, From> {
  static __device__ bool Of(From x) { return x != From(0); }
};
template <typename From>
struct Narrowed<half, From> {
  static __device__ half Of(From x) {
    half narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(static_cast<float>(x)));
    return narrow;
  }
};
template <typename From>
struct Narrowed<bfloat16, From> {
  static __device__ bfloat16 Of(From x) {
    bfloat16 narrow;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(static_cast<float>(x)));
    return narrow;
  }
};
template <typename To, typename From>
__device__ inline To Narrow(From x) {
  return Narrowed<To, From>::Of(x);
}

// The strides of the operands along each dimension of the result (0 means broadcast). The result is in row-major order.
struct Strides {
  int rank;
  int64_t size[12];
  int64_t step[3][12];
};

__device__ inline void Offsets(const Strides& strides, int64_t i, int operands, int64_t* at) {
  for (int k = 0; k < operands; ++k) at[k] = 0;
  for (int d = strides.rank - 1; d >= 0; --d) {
    const int64_t next = i / strides.size[d], here = i - next * strides.size[d];
    for (int k = 0; k < operands; ++k) at[k] += here * strides.step[k][d];
    i = next;
  }
}

}  // namespace millrace
