#include "millrace/base/philox.h"

namespace millrace {
namespace {

constexpr uint32_t kWeylA = 0x9E3779B9;
constexpr uint32_t kWeylB = 0xBB67AE85;
constexpr uint64_t kMultiplierA = 0xD2511F53;
constexpr uint64_t kMultiplierB = 0xCD9E8D57;
constexpr int kRounds = 10;
// Groups computed at once, so that the compiler vectorises the loops over them.
constexpr int kLanes = 32;

// Groups for counters c, c + 1, and so on up to c + kLanes - 1, which must differ in their first word only.
void FillLanes(const Philox::Group& c, uint32_t k0, uint32_t k1, uint32_t* out) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    c0[i] = c[0] + static_cast<uint32_t>(i);
    c1[i] = c[1];
    c2[i] = c[2];
    c3[i] = c[3];
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t a = kMultiplierA * c0[i];
      const uint64_t b = kMultiplierB * c2[i];
      c0[i] = static_cast<uint32_t>(b >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(b);
      c2[i] = static_cast<uint32_t>(a >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(a);
    }
    k0 += kWeylA;
    k1 += kWeylB;
  }
  for (int i = 0; i < kLanes; ++i) {
    out[4 * i] = c0[i];
    out[4 * i + 1] = c1[i];
    out[4 * i + 2] = c2[i];
    out[4 * i + 3] = c3[i];
  }
}

}  // namespace

Philox::Philox(uint64_t seed, uint64_t seed2) {
  key_ = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  counter_ = {0, 0, static_cast<uint32_t>(seed2), static_cast<uint32_t>(seed2 >> 32)};
}

Philox::Group Philox::operator()() {
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

void Philox::Fill(uint32_t* out, int64_t n) {
  while (n > 0) {
    if (n >= kLanes && counter_[0] <= UINT32_MAX - kLanes) {
      FillLanes(counter_, key_[0], key_[1], out);
      counter_[0] += kLanes;
      out += 4 * kLanes;
      n -= kLanes;
    } else {
      const Group group = (*this)();
      for (const uint32_t x : group) *out++ = x;
      --n;
    }
  }
}

void Philox::Skip(uint64_t groups) {
  const uint64_t low = counter_[0] | static_cast<uint64_t>(counter_[1]) << 32;
  const uint64_t sum = low + groups;
  counter_[0] = static_cast<uint32_t>(sum);
  counter_[1] = static_cast<uint32_t>(sum >> 32);
  if (sum < low && ++counter_[2] == 0) ++counter_[3];
}

}  // namespace millrace
