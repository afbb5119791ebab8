#include "millrace/ops/fused/fused_chains.h"

#include <array>
#include <utility>

#include "millrace/ops/kernels/reduce.h"

namespace millrace {
namespace {

// A code is 2 * operation, plus 1 if the operand is a scalar.
template <int kCode>
inline float Apply(float acc, float x) {
  constexpr ChainOp kOp = static_cast<ChainOp>(kCode / 2);
  if constexpr (kOp == ChainOp::kAdd) return acc + x;
  if constexpr (kOp == ChainOp::kMul) return acc * x;
  if constexpr (kOp == ChainOp::kSub) return acc - x;
  if constexpr (kOp == ChainOp::kReverseSub) return x - acc;
}
template <int kCode>
inline float At(const float* x, float standing, int64_t i) {
  return kCode % 2 != 0 ? standing : x[i];
}

template <int kFirst, int kSecond>
void Two(const float* acc, const float* const* x, float* y, int64_t n) {
  const float *a = x[0], *b = x[1];
  const float fa = *a, fb = *b;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    y[i] = Apply<kSecond>(Apply<kFirst>(acc[i], At<kFirst>(a, fa, i)), At<kSecond>(b, fb, i));
  }
}

template <int kFirst, int kSecond, int kThird>
void Three(const float* acc, const float* const* x, float* y, int64_t n) {
  const float *a = x[0], *b = x[1], *c = x[2];
  const float fa = *a, fb = *b, fc = *c;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float two = Apply<kSecond>(Apply<kFirst>(acc[i], At<kFirst>(a, fa, i)), At<kSecond>(b, fb, i));
    y[i] = Apply<kThird>(two, At<kThird>(c, fc, i));
  }
}

constexpr int kCodes = 8, kPlainCodes = 4;  // kPlainCodes: sums and products only

template <size_t... k>
constexpr std::array<ChainLoop, sizeof...(k)> MakeTwos(std::index_sequence<k...>) {
  return {&Two<k / kCodes, k % kCodes>...};
}
template <size_t... k>
constexpr std::array<ChainLoop, sizeof...(k)> MakeThrees(std::index_sequence<k...>) {
  return {&Three<k / (kPlainCodes * kPlainCodes), k / kPlainCodes % kPlainCodes, k % kPlainCodes>...};
}
constexpr auto kTwos = MakeTwos(std::make_index_sequence<kCodes * kCodes>());
constexpr auto kThrees = MakeThrees(std::make_index_sequence<kPlainCodes * kPlainCodes * kPlainCodes>());

struct SquareSumReducer {
  using Acc = float;
  static Acc Identity() { return 0; }
  static Acc Load(float x) { return x * x; }
  static Acc Combine(Acc a, Acc b) { return a + b; }
};

}  // namespace

ChainLoop FindChainLoop(int count, const ChainOp* ops, const bool* stands) {
  int codes[kMostChainOps] = {};
  for (int i = 0; i < count; ++i) codes[i] = 2 * static_cast<int>(ops[i]) + stands[i];
  if (count == 2) return kTwos[codes[0] * kCodes + codes[1]];
  if (count != 3) return nullptr;
  for (const int code : codes) {
    if (code >= kPlainCodes) return nullptr;
  }
  return kThrees[(codes[0] * kPlainCodes + codes[1]) * kPlainCodes + codes[2]];
}

void SumOfSquares(const void* in, int64_t n, void* acc) {
  *static_cast<float*>(acc) = reduce_internal::Row<SquareSumReducer>(static_cast<const float*>(in), n);
}

}  // namespace millrace
