// What every program that NVRTC compiles begins with: the types of elements, and what functors.h uses of the standard
// library. NVRTC reads it as text and finds no other headers; nothing else includes it. Tests compile the same text for
// the host, behind what host_programs_testing.cc puts in place of CUDA.
#pragma once

using int64_t = long long;
using uint64_t = unsigned long long;
using uint32_t = unsigned int;
using uint16_t = unsigned short;

#define MR_FN __device__

namespace std {

template <typename T>
inline constexpr bool is_floating_point_v = false;
template <>
inline constexpr bool is_floating_point_v<float> = true;
template <>
inline constexpr bool is_floating_point_v<double> = true;

template <typename T, typename U>
inline constexpr bool is_same_v = false;
template <typename T>
inline constexpr bool is_same_v<T, T> = true;

template <bool condition, typename T, typename U>
struct conditional {
  using type = T;
};
template <typename T, typename U>
struct conditional<false, T, U> {
  using type = U;
};
template <bool condition, typename T, typename U>
using conditional_t = typename conditional<condition, T, U>::type;

template <typename T>
using make_unsigned_t = conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;  // of integers of 32 or 64 bits

template <typename T, int n>
struct array {
  T elements[n];
  __device__ T& operator[](int i) { return elements[i]; }
  __device__ const T& operator[](int i) const { return elements[i]; }
  __device__ const T* data() const { return elements; }
};

template <typename To, typename From>
__device__ inline To bit_cast(const From& from) {
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

#define MR_FUNCTION(name)                                        \
  __device__ inline float name(float x) { return ::name##f(x); } \
  __device__ inline double name(double x) { return ::name(x); }
MR_FUNCTION(sqrt)
MR_FUNCTION(fabs)
MR_FUNCTION(ceil)
MR_FUNCTION(floor)
MR_FUNCTION(rint)
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

__device__ inline float pow(float x, float y) { return ::powf(x, y); }
__device__ inline double pow(double x, double y) { return ::pow(x, y); }

}  // namespace std

namespace millrace {

struct half {
  unsigned short bits;
  static __device__ half FromRaw(unsigned short raw) { return {raw}; }
};
struct bfloat16 {
  unsigned short bits;
  static __device__ bfloat16 FromRaw(unsigned short raw) { return {raw}; }
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
__device__ inline complex<R>& operator-=(complex<R>& a, complex<R> b) {
  return a = a - b;
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
#ifdef MILLRACE_ON_HOST
  return HostWiden(x.bits);
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#endif
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
#ifdef MILLRACE_ON_HOST
    narrow.bits = HostNarrow(static_cast<float>(x), /*bfloat16=*/false);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(static_cast<float>(x)));
#endif
    return narrow;
  }
};
template <typename From>
struct Narrowed<bfloat16, From> {
  static __device__ bfloat16 Of(From x) {
    bfloat16 narrow;
#ifdef MILLRACE_ON_HOST
    narrow.bits = HostNarrow(static_cast<float>(x), /*bfloat16=*/true);
#else
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(static_cast<float>(x)));
#endif
    return narrow;
  }
};
template <typename To, typename From>
__device__ inline To Narrow(From x) {
  return Narrowed<To, From>::Of(x);
}

// Calls body(i) for all i < n, each in one thread of a launch over elements.
template <typename Body>
__device__ inline void ForElements(int64_t n, Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) body(i);
}

// Calls body(i) for all rows of a launch over rows and columns (CudaCall::LaunchOverRows), and there
// ForColumns(n, each) for the columns of that row.
template <typename Body>
__device__ inline void ForRows(int64_t n, Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; i < n; i += step) body(i);
}
template <typename Body>
__device__ inline void ForColumns(int64_t n, Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; i < n; i += step) body(i);
}

// An element of 16 bytes whose value does not matter.
struct alignas(16) Bytes16 {
  uint64_t low, high;
};

// The least and the greatest value; infinities, if there are.
template <typename T>
struct Limits {
  static constexpr bool kSigned = T(-1) < T(0);
  static constexpr T kTop = T(1) << (8 * sizeof(T) - 1);  // the sign's bit, if there is one
  static __device__ T Least() { return kSigned ? kTop : T(0); }
  static __device__ T Greatest() { return kSigned ? T(~kTop) : T(~T(0)); }
};
template <>
struct Limits<float> {
  static __device__ float Least() { return __int_as_float(0xff800000); }
  static __device__ float Greatest() { return __int_as_float(0x7f800000); }
};
template <>
struct Limits<double> {
  static __device__ double Least() { return __longlong_as_double(0xfff0000000000000); }
  static __device__ double Greatest() { return __longlong_as_double(0x7ff0000000000000); }
};

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
