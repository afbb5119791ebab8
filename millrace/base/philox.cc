#include "millrace/base/philox.h"

namespace millrace {
namespace {

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
  for (int round = 0; round < Philox::kRounds; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t a = Philox::kMultiplierA * c0[i];
      const uint64_t b = Philox::kMultiplierB * c2[i];
      c0[i] = static_cast<uint32_t>(b >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(b);
      c2[i] = static_cast<uint32_t>(a >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(a);
    }
    k0 += Philox::kWeylA;
    k1 += Philox::kWeylB;
  }
  for (int i = 0; i < kLanes; ++i) {
    out[4 * i] = c0[i];
    out[4 * i + 1] = c1[i];
    out[4 * i + 2] = c2[i];
    out[4 * i + 3] = c3[i];
  }
}

}  // namespace

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

}  // namespace millrace
