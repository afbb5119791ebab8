// Philox 4x32-10: the counter-based generator that TensorFlow's random ops use.
//
// Two compilers read this, as they do ops/kernels/functors.h: the CPU's, and NVRTC, as text.
#pragma once

#if !defined(__CUDACC_RTC__) && !defined(MILLRACE_ON_HOST)  // not in a program, behind ops/kernels/cuda/prelude.h
#include <array>
#include <cstdint>
#ifndef MR_FN
#define MR_FN
#endif
#endif

namespace millrace {

// A copyable stream of 32-bit numbers in groups of four. Skip(n) skips n groups in constant time, so that several
// threads can fill pieces of one tensor with the same result as a single thread.
class Philox {
 public:
  using Group = std::array<uint32_t, 4>;

  static constexpr uint32_t kWeylA = 0x9E3779B9;
  static constexpr uint32_t kWeylB = 0xBB67AE85;
  static constexpr uint64_t kMultiplierA = 0xD2511F53;
  static constexpr uint64_t kMultiplierB = 0xCD9E8D57;
  static constexpr int kRounds = 10;

  // TensorFlow's seeding: `seed` is the key, `seed2` the upper half of the counter.
  MR_FN explicit Philox(uint64_t seed = 0, uint64_t seed2 = 0)
      : counter_{0, 0, static_cast<uint32_t>(seed2), static_cast<uint32_t>(seed2 >> 32)},
        key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}
  // From raw state, as the stateless ops pass it.
  MR_FN Philox(Group counter, std::array<uint32_t, 2> key) : counter_(counter), key_(key) {}

  MR_FN Group operator()() {
    Group c = counter_;
    uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t a = kMultiplierA * c[0];
      const uint64_t b = kMultiplierB * c[2];
      c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
           static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
      k0 += kWeylA;
      k1 += kWeylB;
    }
    Skip(1);
    return c;
  }
  // Writes the next n groups to `out`: equivalent to n calls, but several times faster. On the CPU only.
  MR_FN void Fill(uint32_t* out, int64_t n);
  MR_FN void Skip(uint64_t groups) {
    const uint64_t low = counter_[0] | static_cast<uint64_t>(counter_[1]) << 32;
    const uint64_t sum = low + groups;
    counter_[0] = static_cast<uint32_t>(sum);
    counter_[1] = static_cast<uint32_t>(sum >> 32);
    if (sum < low && ++counter_[2] == 0) ++counter_[3];
  }

  MR_FN const Group& counter() const { return counter_; }
  MR_FN const std::array<uint32_t, 2>& key() const { return key_; }

 private:
  Group counter_{};
  std::array<uint32_t, 2> key_{};
};

}  // namespace millrace
