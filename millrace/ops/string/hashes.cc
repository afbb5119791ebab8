#include "millrace/ops/string/hashes.h"

#include <bit>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

constexpr uint64_t kFarm0 = 0xc3a5c85c97cb3127, kFarm1 = 0xb492b66fbe98f273, kFarm2 = 0x9ae16a3b2f90404f;

uint64_t Load64(const char* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
uint64_t Load32(const char* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
uint64_t Byte(char c) { return static_cast<unsigned char>(c); }
uint64_t Right(uint64_t v, int bits) { return std::rotr(v, bits); }
uint64_t Fold(uint64_t v) { return v ^ (v >> 47); }

uint64_t Mix(uint64_t u, uint64_t v, uint64_t mul) {
  const uint64_t a = Fold((u ^ v) * mul);
  return Fold((v ^ a) * mul) * mul;
}

uint64_t FarmTo16(const char* s, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  if (n >= 8) {
    const uint64_t a = Load64(s) + kFarm2, b = Load64(s + n - 8);
    return Mix(Right(b, 37) * mul + a, (Right(a, 25) + b) * mul, mul);
  }
  if (n >= 4) return Mix(n + (Load32(s) << 3), Load32(s + n - 4), mul);
  if (n == 0) return kFarm2;
  const uint64_t y = Byte(s[0]) + (Byte(s[n >> 1]) << 8), z = n + (Byte(s[n - 1]) << 2);
  return Fold(y * kFarm2 ^ z * kFarm0) * kFarm2;
}

uint64_t FarmTo32(const char* s, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  const uint64_t a = Load64(s) * kFarm1, b = Load64(s + 8);
  const uint64_t c = Load64(s + n - 8) * mul, d = Load64(s + n - 16) * kFarm2;
  return Mix(Right(a + b, 43) + Right(c, 30) + d, a + Right(b + kFarm2, 18) + c, mul);
}

uint64_t FarmTo64(const char* s, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  const uint64_t a = Load64(s) * kFarm2, b = Load64(s + 8);
  const uint64_t c = Load64(s + n - 8) * mul, d = Load64(s + n - 16) * kFarm2;
  const uint64_t y = Right(a + b, 43) + Right(c, 30) + d;
  const uint64_t z = Mix(y, a + Right(b + kFarm2, 18) + c, mul);
  const uint64_t e = Load64(s + 16) * mul, f = Load64(s + 24);
  const uint64_t g = (y + Load64(s + n - 32)) * mul, h = (z + Load64(s + n - 24)) * mul;
  return Mix(Right(e + f, 43) + Right(g, 30) + h, e + Right(f + a, 18) + g, mul);
}

// Longer texts: blocks of 64 bytes mixed into seven words.
struct FarmState {
  using Pair = std::pair<uint64_t, uint64_t>;
  uint64_t x, y, z;
  Pair v{0, 0}, w{0, 0};

  static Pair Mix32(const char* s, uint64_t a, uint64_t b) {
    const uint64_t last = Load64(s + 24);
    a += Load64(s);
    b = Right(b + a + last, 21);
    const uint64_t c = a;
    a += Load64(s + 8) + Load64(s + 16);
    b += Right(a, 44);
    return {a + last, b + c};
  }
  // The last block uses another multiplier and weighs two of the words by 9.
  void Block(const char* s, uint64_t mul, uint64_t weight) {
    x = Right(x + y + v.first + Load64(s + 8), 37) * mul;
    y = Right(y + v.second + Load64(s + 48), 42) * mul;
    x ^= w.second * weight;
    y += v.first * weight + Load64(s + 40);
    z = Right(z + w.first, 33) * mul;
    v = Mix32(s, v.second * mul, x + w.first);
    w = Mix32(s + 32, z + w.second, y + Load64(s + 16));
    std::swap(z, x);
  }
};

}  // namespace

uint64_t FarmFingerprint64(absl::string_view text) {
  const char* s = text.data();
  const size_t n = text.size();
  if (n <= 16) return FarmTo16(s, n);
  if (n <= 32) return FarmTo32(s, n);
  if (n <= 64) return FarmTo64(s, n);
  constexpr uint64_t kSeed = 81;
  FarmState state{.x = kSeed * kFarm2 + Load64(s), .y = kSeed * kFarm1 + 113, .z = 0};
  state.z = Fold(state.y * kFarm2 + 113) * kFarm2;
  const char* const last = s + n - 64;
  for (size_t blocks = (n - 1) / 64; blocks > 0; --blocks, s += 64) state.Block(s, kFarm1, 1);
  const uint64_t mul = kFarm1 + ((state.z & 0xff) << 1);
  state.w.first += (n - 1) & 63;
  state.v.first += state.w.first;
  state.w.first += state.v.first;
  state.Block(last, mul, 9);
  return Mix(Mix(state.v.first, state.w.first, mul) + Fold(state.y) * kFarm0 + state.z,
             Mix(state.v.second, state.w.second, mul) + state.x, mul);
}

uint64_t MurmurHash64(absl::string_view text, uint64_t seed) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  const char* s = text.data();
  size_t n = text.size();
  uint64_t h = seed ^ (n * kMul);
  for (; n >= 8; n -= 8, s += 8) h = (h ^ (Fold(Load64(s) * kMul) * kMul)) * kMul;
  if (n > 0) {
    for (size_t i = 0; i < n; ++i) h ^= Byte(s[i]) << (8 * i);
    h *= kMul;
  }
  return Fold(Fold(h) * kMul);
}

uint64_t SipHash(uint64_t key0, uint64_t key1, absl::string_view text) {
  uint64_t v0 = key0 ^ 0x736f6d6570736575, v1 = key1 ^ 0x646f72616e646f6d;
  uint64_t v2 = key0 ^ 0x6c7967656e657261, v3 = key1 ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto absorb = [&](uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  };
  const char* s = text.data();
  size_t n = text.size();
  for (; n >= 8; n -= 8, s += 8) absorb(Load64(s));
  uint64_t last = static_cast<uint64_t>(text.size()) << 56;
  for (size_t i = 0; i < n; ++i) last |= Byte(s[i]) << (8 * i);
  absorb(last);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace millrace
