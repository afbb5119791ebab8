// Distributions of the random ops over Philox's 32-bit numbers; they draw exactly the numbers that TensorFlow does.
//
// A distribution produces kPerGroup outputs at a time. Most use one group of four numbers for that. One with rejection
// (kVariable) uses as many as it needs, and each of its groups of outputs starts at a fixed position in the stream, so
// that any part of a tensor can be generated without the rest.
//
// Two compilers read this, as they do ops/kernels/functors.h: the CPU's, and NVRTC, as text behind base/philox.h.
#pragma once

#if !defined(__CUDACC_RTC__) && !defined(MILLRACE_ON_HOST)  // not in a program, behind ops/kernels/cuda/prelude.h
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "millrace/base/philox.h"
#include "millrace/tensor/half.h"

namespace millrace::random {
template <typename To, typename From>
To Narrow(From x) {
  return static_cast<To>(x);
}
template <typename T>
float Widen(T x) {
  return static_cast<float>(x);
}
}  // namespace millrace::random
#endif

namespace millrace::random {

// Groups of numbers reserved per output, more than any distribution uses.
inline constexpr int64_t kGroupsPerOutput = 256;
inline constexpr int kNumbersPerGroup = 4;

// In [0, 1): the low bits become the mantissa of a number in [1, 2).
MR_FN inline float ToFloat(uint32_t x) { return std::bit_cast<float>(0x3f800000u | (x & 0x7fffffu)) - 1.0f; }
MR_FN inline double ToDouble(uint32_t high, uint32_t low) {
  return std::bit_cast<double>((uint64_t{1023} << 52) | (uint64_t{high & 0xfffffu} << 32) | low) - 1.0;
}
MR_FN inline half ToHalf(uint32_t x) {
  return Narrow<half>(Widen(half::FromRaw(static_cast<uint16_t>(0x3c00 | (x & 0x3ff)))) - 1.0f);
}
MR_FN inline bfloat16 ToBFloat16(uint32_t x) {
  return Narrow<bfloat16>(Widen(bfloat16::FromRaw(static_cast<uint16_t>(0x3f80 | (x & 0x7f)))) - 1.0f);
}
MR_FN inline uint64_t ToUInt64(uint32_t low, uint32_t high) { return low | (uint64_t{high} << 32); }

// Returns a stream's numbers one by one.
class SingleNumbers {
 public:
  MR_FN explicit SingleNumbers(const Philox& stream) : stream_(stream) {}
  MR_FN uint32_t operator()() {
    if (next_ == kNumbersPerGroup) {
      group_ = stream_();
      next_ = 0;
    }
    return group_[next_++];
  }
  // Uniform in [0, n), by rejection.
  MR_FN uint32_t Below(uint32_t n) {
    if (n == 0) return (*this)() * n;
    if ((n & (n - 1)) == 0) return (*this)() & (n - 1);
    const uint32_t rejected = ~uint32_t{0} % n + 1;
    uint32_t number = (*this)();
    while (number < rejected) number = (*this)();
    return number % n;
  }
  // In [0, 1), with 52 random bits.
  MR_FN double Double() {
    const uint32_t high = (*this)();
    return ToDouble(high, (*this)());
  }

 private:
  Philox stream_;
  Philox::Group group_{};
  int next_ = kNumbersPerGroup;
};

// Two normal numbers from two uniform ones.
template <typename T>
MR_FN void BoxMuller(T uniform1, T uniform2, T* out) {
  constexpr T kLeast = static_cast<T>(1e-7);
  constexpr T kTwoPi = static_cast<T>(6.283185307179586476925);
  const T radius = std::sqrt(T(-2) * std::log(uniform1 < kLeast ? kLeast : uniform1));
  const T angle = kTwoPi * uniform2;
  out[0] = std::sin(angle) * radius;
  out[1] = std::cos(angle) * radius;
}

// The type normal numbers are computed in.
template <typename T>
using NormalType = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
struct Uniform {
  static constexpr bool kVariable = false;
  static constexpr int kPerGroup = std::is_same_v<T, double> ? 2 : 4;
  MR_FN void operator()(const uint32_t* x, T* out) const {
    for (int i = 0; i < kPerGroup; ++i) {
      if constexpr (std::is_same_v<T, double>) out[i] = ToDouble(x[2 * i], x[2 * i + 1]);
      if constexpr (std::is_same_v<T, float>) out[i] = ToFloat(x[i]);
      if constexpr (std::is_same_v<T, half>) out[i] = ToHalf(x[i]);
      if constexpr (std::is_same_v<T, bfloat16>) out[i] = ToBFloat16(x[i]);
    }
  }
};

template <typename T>
struct Normal {
  static constexpr bool kVariable = false;
  static constexpr int kPerGroup = std::is_same_v<T, double> ? 2 : 4;
  MR_FN void operator()(const uint32_t* x, T* out) const {
    NormalType<T> pair[2];
    for (int i = 0; i < kPerGroup; i += 2) {
      if constexpr (std::is_same_v<T, double>) {
        BoxMuller(ToDouble(x[0], x[1]), ToDouble(x[2], x[3]), pair);
      } else {
        BoxMuller(ToFloat(x[i]), ToFloat(x[i + 1]), pair);
      }
      out[i] = Narrow<T>(pair[0]);
      out[i + 1] = Narrow<T>(pair[1]);
    }
  }
};

// Normal numbers truncated at two standard deviations, by rejection.
template <typename T>
struct TruncatedNormal {
  static constexpr bool kVariable = true;
  static constexpr int kPerGroup = std::is_same_v<T, double> ? 2 : 4;
  MR_FN void operator()(const Philox& stream, T* out) const {
    SingleNumbers numbers(stream);
    int filled = 0;
    while (true) {
      NormalType<T> pair[2];
      if constexpr (std::is_same_v<T, double>) {
        const double first = numbers.Double();
        BoxMuller(first, numbers.Double(), pair);
      } else {
        const float first = ToFloat(numbers());
        BoxMuller(first, ToFloat(numbers()), pair);
      }
      for (const auto value : pair) {
        if (std::abs(value) >= 2) continue;
        out[filled++] = Narrow<T>(value);
        if (filled == kPerGroup) return;
      }
    }
  }
};

// Uniform over all numbers of the type.
template <typename T>
struct FullInt {
  static constexpr bool kVariable = false;
  static constexpr int kPerGroup = sizeof(T) == 8 ? 2 : 4;
  MR_FN void operator()(const uint32_t* x, T* out) const {
    for (int i = 0; i < kPerGroup; ++i) {
      if constexpr (sizeof(T) == 8) {
        out[i] = static_cast<T>(ToUInt64(x[2 * i], x[2 * i + 1]));
      } else {
        out[i] = static_cast<T>(x[i]);
      }
    }
  }
};

// Uniform over `range` integers from `low` on.
template <typename T>
struct UniformInt {
  using U = std::make_unsigned_t<T>;
  static constexpr bool kVariable = false;
  static constexpr int kPerGroup = FullInt<U>::kPerGroup;
  MR_FN void operator()(const uint32_t* x, T* out) const {
    U full[kPerGroup];
    FullInt<U>()(x, full);
    for (int i = 0; i < kPerGroup; ++i) out[i] = static_cast<T>(low + full[i] % range);
  }
  U low;
  U range;
};

// The outputs of a group, the first of which is number group * kPerGroup of the tensor, whose stream this is.
template <typename Distribution, typename T>
MR_FN void DrawGroup(const Distribution& distribution, const Philox& stream, int64_t group, T* out) {
  Philox position = stream;
  if constexpr (Distribution::kVariable) {
    position.Skip(static_cast<uint64_t>(group) * Distribution::kPerGroup * kGroupsPerOutput / kNumbersPerGroup);
    distribution(position, out);
  } else {
    position.Skip(static_cast<uint64_t>(group));
    const Philox::Group numbers = position();
    distribution(numbers.data(), out);
  }
}

}  // namespace millrace::random
