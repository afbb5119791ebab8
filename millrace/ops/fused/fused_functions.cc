#include "millrace/ops/fused/fused_functions.h"

#include <algorithm>
#include <array>
#include <utility>

#include "millrace/ops/kernels/vector_packet.h"

namespace millrace {
namespace {

using Before = FunctionShape::Before;
using After = FunctionShape::After;

constexpr int kBefores = 3, kAfters = 4;

template <typename F, Before kBefore, After kAfter>
void Loop(const float* const* operands, float* y, int64_t n) {
  const float* const x = operands[0];
  const float* const factor = kAfter >= After::kAddMul ? operands[3] : x;
  const Vec before = Broadcast(kBefore != Before::kNothing ? *operands[1] : 0);
  const Vec add = Broadcast(kAfter >= After::kAdd ? *operands[2] : 0);
  const Vec scale = Broadcast(kAfter == After::kAddMulScaled ? *operands[4] : 0);
  const auto run = [&](const float* from, const float* times, float* to) {
    Vec v = Load(from);
    if constexpr (kBefore == Before::kMul) v = v * before;
    if constexpr (kBefore == Before::kDiv) v = v / before;
    v = F::Of(v);
    if constexpr (kAfter >= After::kAdd) v = v + add;
    if constexpr (kAfter == After::kAddMul) v = Load(times) * v;
    if constexpr (kAfter == After::kAddMulScaled) v = (Load(times) * scale) * v;
    Store(to, v);
  };
  int64_t i = 0;
  for (; i + kVec <= n; i += kVec) run(x + i, factor + i, y + i);
  if (i == n) return;
  // The remainder is padded and takes the same path.
  float rest[kVec] = {}, times[kVec] = {};
  std::copy(x + i, x + n, rest);
  std::copy(factor + i, factor + n, times);
  run(rest, times, rest);
  std::copy(rest, rest + (n - i), y + i);
}

template <typename F, size_t... k>
constexpr std::array<FunctionLoop, sizeof...(k)> MakeLoops(std::index_sequence<k...>) {
  return {&Loop<F, static_cast<Before>(k / kAfters), static_cast<After>(k % kAfters)>...};
}
using Shapes = std::make_index_sequence<kBefores * kAfters>;
constexpr auto kErfLoops = MakeLoops<vector::ErfOf>(Shapes());
constexpr auto kTanhLoops = MakeLoops<vector::TanhOf>(Shapes());

}  // namespace

FunctionLoop FindFunctionLoop(absl::string_view op, FunctionShape shape) {
  const int at = static_cast<int>(shape.before) * kAfters + static_cast<int>(shape.after);
  if (op == "Erf") return kErfLoops[at];
  if (op == "Tanh") return kTanhLoops[at];
  return nullptr;
}

}  // namespace millrace
