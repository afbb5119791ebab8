// Loops over several sums, differences and products at once: what lies between them stays in registers.
#pragma once

#include <cstdint>

namespace millrace {

// acc op x, or x - acc.
enum class ChainOp : uint8_t { kAdd, kMul, kSub, kReverseSub };

// y[i] = op2(op1(acc[i], x1[i]), x2[i]), and so on; an operand that stands gives its first element. Each operation
// rounds as if it stood alone. `y` may be any of the others.
using ChainLoop = void (*)(const float* acc, const float* const* x, float* y, int64_t n);

inline constexpr int kMostChainOps = 3;

// Null when there is no such loop: three operations are sums and products only.
ChainLoop FindChainLoop(int count, const ChainOp* ops, const bool* stands);

// The sum of squares of a row, added up in the order of Sum over Square.
void SumOfSquares(const void* in, int64_t n, void* acc);

}  // namespace millrace
