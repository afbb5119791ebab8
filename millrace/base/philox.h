// Philox 4x32-10: the counter-based generator that TensorFlow's random ops use.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

// A copyable stream of 32-bit numbers, four at a time. Skip(n) jumps n groups of four in constant
// time, so that pieces of one tensor can be filled by different threads with the same result.
class Philox {
 public:
  using Group = std::array<uint32_t, 4>;

  // TensorFlow's seeding: `seed` is the key, `seed2` the upper half of the counter.
  explicit Philox(uint64_t seed = 0, uint64_t seed2 = 0);
  // From the raw state, as the stateless ops have it.
  Philox(Group counter, std::array<uint32_t, 2> key) : counter_(counter), key_(key) {}

  Group operator()();
  // The next n groups, one after another in `out`: what n calls give, several times faster.
  void Fill(uint32_t* out, int64_t n);
  void Skip(uint64_t groups);

  const Group& counter() const { return counter_; }
  const std::array<uint32_t, 2>& key() const { return key_; }

 private:
  Group counter_{};
  std::array<uint32_t, 2> key_{};
};

}  // namespace millrace
