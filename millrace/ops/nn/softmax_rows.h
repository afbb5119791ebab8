// Exponentials of rows and their sums, shared by softmax and the cross entropies.
#pragma once

#include <algorithm>
#include <cstdint>

#include "millrace/ops/kernels/vector_math.h"

namespace millrace {

// The number of rows per ExpRows call, whose exponentials are computed in one vectorised pass.
inline int64_t RowsPerBlock(int64_t width) { return std::max<int64_t>(1, 1024 / std::max<int64_t>(width, 1)); }
// The number of rows that is worth another thread; a multiple of RowsPerBlock.
inline int64_t RowGrain(int64_t width) {
  const int64_t block = RowsPerBlock(width);
  return block * std::max<int64_t>(1, 8192 / std::max<int64_t>(width * block, 1));
}

// The maximum, computed in parallel lanes. NaN may or may not propagate.
template <typename C>
C LargestOf(const C* x, int64_t n) {
  constexpr int kLanes = 32;
  C most = x[0];
  int64_t i = 1;
  if (n >= 2 * kLanes) {
    C lanes[kLanes];
    std::copy_n(x, kLanes, lanes);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) lanes[j] = lanes[j] < x[i + j] ? x[i + j] : lanes[j];
    }
    for (int j = 0; j < 16; ++j) lanes[j] = lanes[j] < lanes[j + 16] ? lanes[j + 16] : lanes[j];
    for (int j = 0; j < 8; ++j) lanes[j] = lanes[j] < lanes[j + 8] ? lanes[j + 8] : lanes[j];
    for (int j = 0; j < 8; ++j) most = std::max(most, lanes[j]);
  }
  for (; i < n; ++i) most = std::max(most, x[i]);
  return most;
}

// shifted = x - max of the row. `shifted` may alias x.
template <typename C>
void ShiftRows(const C* x, int64_t rows, int64_t width, C* shifted) {
  for (int64_t r = 0; r < rows; ++r, x += width, shifted += width) {
    const C most = LargestOf(x, width);
    for (int64_t i = 0; i < width; ++i) shifted[i] = x[i] - most;
  }
}

// e = exp(shifted); sums[r] = sum of row r. `e` may alias `shifted`.
template <typename C>
void ExpRows(const C* shifted, int64_t rows, int64_t width, C* e, C* sums) {
  vector::Exp(shifted, e, rows * width);
  for (int64_t r = 0; r < rows; ++r) {
    const C* row = e + r * width;
    // Eight running sums: a fixed order that vectorises.
    C part[8] = {};
    int64_t i = 0;
    for (; i + 8 <= width; i += 8) {
      for (int j = 0; j < 8; ++j) part[j] += row[i + j];
    }
    C sum = ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
    for (; i < width; ++i) sum += row[i];
    sums[r] = sum;
  }
}

}  // namespace millrace
