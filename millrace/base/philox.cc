#include "millrace/base/philox.h"

namespace millrace {
namespace {

constexpr uint32_t kWeylA = 0x9E3779B9;
constexpr uint32_t kWeylB = 0xBB67AE85;
constexpr uint64_t kMultiplierA = 0xD2511F53;
constexpr uint64_t kMultiplierB = 0xCD9E8D57;
constexpr int kRounds = 10;

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

void Philox::Skip(uint64_t groups) {
  const uint64_t low = counter_[0] | static_cast<uint64_t>(counter_[1]) << 32;
  const uint64_t sum = low + groups;
  counter_[0] = static_cast<uint32_t>(sum);
  counter_[1] = static_cast<uint32_t>(sum >> 32);
  if (sum < low && ++counter_[2] == 0) ++counter_[3];
}

}  // namespace millrace
