// Philox 4x32-10: the counter-based generator that TensorFlow's random ops use.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

// A copyable stream of 32-bit numbers in groups of four. Skip(n) skips n groups in constant time, so that several
// threads can fill pieces of one tensor with the same result as a single thread.
class Philox {
 public:
  using Group = std::array<uint32_t, 4>;

  // TensorFlow's seeding: `seed` is the key, `seed2` the upper half of the counter.
  explicit Philox(uint64_t seed = 0, uint64_t seed2 = 0);
  // From raw state, as the stateless ops pass it.
  Philox(Group counter, std::array<uint32_t, 2> key) : counter_(counter), key_(key) {}

  Group operator()();
  // Writes the next n groups to `out`: equivalent to n calls, but several times faster.
  void Fill(uint32_t* out, int64_t n);
  void Skip(uint64_t groups);

  const Group& counter() const { return counter_; }
  const std::array<uint32_t, 2>& key() const { return key_; }

 private:
  Group counter_{};
  std::array<uint32_t, 2> key_{};
};

}  // namespace millrace
