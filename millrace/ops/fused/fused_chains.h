// Loops that compute several sums, differences and products at once, with intermediate values in registers.
#pragma once

#include <cstdint>

namespace millrace {

// acc op x, or x - acc.
enum class ChainOp : uint8_t { kAdd, kMul, kSub, kReverseSub };

// y[i] = op2(op1(acc[i], x1[i]), x2[i]), and so on; of a scalar operand ("stands") only the first element is used. Each
// operation rounds separately. `y` may alias any operand.
using ChainLoop = void (*)(const float* acc, const float* const* x, float* y, int64_t n);

inline constexpr int kMostChainOps = 3;

// Null if there is no such loop: of three operations, only sums and products are supported.
ChainLoop FindChainLoop(int count, const ChainOp* ops, const bool* stands);

// The sum of squares of a row, in the same order as Sum(Square(x)).
void SumOfSquares(const void* in, int64_t n, void* acc);

}  // namespace millrace
