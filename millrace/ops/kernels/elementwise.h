// Element-wise kernels.
//
// An op provides a functor and a list of types, from which the loops are instantiated; everything else (broadcasting,
// in-place outputs, multi-threading) is shared and compiled once:
//
//   struct Negate {
//     template <typename T>
//     T operator()(T x) const { return -x; }
//   };
//   MILLRACE_KERNEL(Neg, kCpu, UnaryOf<Negate, NumberTypes>);
//
// 16-bit floats are computed as float and rounded once.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "millrace/runtime/kernel.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

template <typename T>
inline constexpr bool kIs16BitFloat = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;
template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<std::complex<T>> = true;
// The type in which elements of type T are computed.
template <typename T>
using ComputeType = std::conditional_t<kIs16BitFloat<T>, float, T>;

using FloatAndComplexTypes = JoinTypes<FloatTypes, ComplexTypes>::type;
using SignedTypes = JoinTypes<FloatTypes, SignedIntTypes>::type;

// Conversion of arrays of 16-bit floats, for loops that work on blocks.
void Widen(const half* from, float* to, int64_t n);
void Widen(const bfloat16* from, float* to, int64_t n);
void Narrow(const float* from, half* to, int64_t n);
void Narrow(const float* from, bfloat16* to, int64_t n);

// Elements per piece of work for one thread. A functor overrides it with kGrain according to its cost per element; the
// value is part of the fixed division of work.
inline constexpr int64_t kCheapGrain = 32768;
inline constexpr int64_t kCostlyGrain = 4096;
template <typename F>
constexpr int64_t GrainOf() {
  if constexpr (requires { F::kGrain; }) {
    return F::kGrain;
  } else {
    return kCheapGrain;
  }
}

// out[i] = f(in[i]). `out` may alias `in`.
using UnaryLoop = void (*)(const void* in, void* out, int64_t n);

// Which operands of a binary loop are arrays, and which is a scalar ("stands").
enum class Operands { kBothMove, kLeftStands, kRightStands };
// out[i] = f(a[i], b[i]); of a scalar operand only the first element is used. `out` may alias either. Returns false if
// an element is outside the function's domain; out is then undefined.
using BinaryLoop = bool (*)(Operands operands, const void* a, const void* b, void* out, int64_t n);

// A functor or reducer whose results have the same bits for signed and unsigned integers says so with kSignless; its
// loops are then compiled for the signed types alone.
template <typename F, typename T>
constexpr bool UsesSignedLoop() {
  if constexpr (requires { F::kSignless; }) {
    return std::is_integral_v<T> && !std::is_same_v<T, bool>;
  } else {
    return false;
  }
}
template <typename F, typename T>
using LoopType = typename std::conditional_t<UsesSignedLoop<F, T>(), std::make_signed<T>, std::type_identity<T>>::type;

// Elements in a block of loops that convert blocks on the stack.
inline constexpr int64_t kBlock = 128;

// Run a loop over floats on blocks of 16-bit floats (T is half or bfloat16). The loop's results are of type T, or with
// `out_size` of another type of that size.
template <typename T>
void MapUnaryBlocks(UnaryLoop loop, size_t out_size, const void* in, void* out, int64_t n);
template <typename T>
bool MapBinaryBlocks(BinaryLoop loop, size_t out_size, Operands operands, const void* a, const void* b, void* out,
                     int64_t n);

// Besides operator(), a functor may have a faster Run(const float*, float*, int64_t) for arrays.
template <typename F, typename In, typename Out>
void MapUnary(const void* in, void* out, int64_t n) {
  if constexpr (kIs16BitFloat<In>) {
    using To = std::conditional_t<std::is_same_v<In, Out>, float, Out>;
    MapUnaryBlocks<In>(&MapUnary<F, float, To>, std::is_same_v<In, Out> ? 0 : sizeof(Out), in, out, n);
  } else {
    const In* x = static_cast<const In*>(in);
    Out* y = static_cast<Out*>(out);
    if constexpr (requires { F::Run(x, y, n); }) {
      F::Run(x, y, n);
    } else {
      const F f{};
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(f(x[i]));
    }
  }
}

// f(a, b), or f(a, b, &bad) where the functor can fail for these types.
template <typename F, typename T>
auto ApplyBinary(const F& f, const T& a, const T& b, bool* bad) {
  if constexpr (requires { f(a, b, bad); }) {
    return f(a, b, bad);
  } else {
    return f(a, b);
  }
}

// A functor with f(a, b) = g(b, a) may name g as its Mirrored, whose loops it then uses.
template <typename F, typename T, typename Out>
bool MapBinary(Operands operands, const void* left, const void* right, void* out, int64_t n) {
  if constexpr (kIs16BitFloat<T>) {
    using To = std::conditional_t<std::is_same_v<T, Out>, float, Out>;
    return MapBinaryBlocks<T>(&MapBinary<F, float, To>, std::is_same_v<T, Out> ? 0 : sizeof(Out), operands, left, right,
                              out, n);
  } else if constexpr (requires { typename F::Mirrored; }) {
    if (operands != Operands::kBothMove)
      operands = operands == Operands::kLeftStands ? Operands::kRightStands : Operands::kLeftStands;
    return MapBinary<typename F::Mirrored, T, Out>(operands, right, left, out, n);
  } else {
    const T* a = static_cast<const T*>(left);
    const T* b = static_cast<const T*>(right);
    Out* y = static_cast<Out*>(out);
    bool bad = false;
    const F f{};
    switch (operands) {
      case Operands::kBothMove:
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(ApplyBinary(f, a[i], b[i], &bad));
        break;
      case Operands::kLeftStands: {
        const T x = a[0];
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(ApplyBinary(f, x, b[i], &bad));
        break;
      }
      case Operands::kRightStands: {
        const T x = b[0];
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(ApplyBinary(f, a[i], x, &bad));
        break;
      }
    }
    return !bad;
  }
}

class UnaryKernel : public Kernel {
 public:
  Status Compute(KernelContext& ctx) override;

 protected:
  UnaryLoop loop_ = nullptr;
  int64_t grain_ = kCheapGrain;
};

class BinaryKernel : public Kernel {
 public:
  Status Compute(KernelContext& ctx) override;

 protected:
  BinaryLoop loop_ = nullptr;
  int64_t grain_ = kCheapGrain;
  // The error message if the loop returns false.
  const char* error_ = "";

 private:
  Status ComputeBroadcast(KernelContext& ctx);
};

// Out = void means the input's type.
template <typename F, typename InTypes, typename Out = void>
class UnaryOf : public UnaryKernel {
 public:
  explicit UnaryOf(KernelInit& init) {
    grain_ = GrainOf<F>();
    const bool known = DispatchType(InTypes{}, init.input_type(0), [&](auto tag) {
      using T = LoopType<F, typename decltype(tag)::type>;
      loop_ = &MapUnary<F, T, std::conditional_t<std::is_void_v<Out>, T, Out>>;
    });
    if (!known) FailDType(init, init.input_type(0));
  }
};

template <typename F, typename InTypes, typename Out = void>
class BinaryOf : public BinaryKernel {
 public:
  explicit BinaryOf(KernelInit& init) {
    grain_ = GrainOf<F>();
    if constexpr (requires { F::kError; }) error_ = F::kError;
    const bool known = DispatchType(InTypes{}, init.input_type(0), [&](auto tag) {
      using T = LoopType<F, typename decltype(tag)::type>;
      loop_ = &MapBinary<F, T, std::conditional_t<std::is_void_v<Out>, T, Out>>;
    });
    if (!known) FailDType(init, init.input_type(0));
  }
};

}  // namespace millrace
