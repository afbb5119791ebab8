// What the TopK and InTopK ops are given, for kernels on the CPU and on a GPU.
#pragma once

#include "millrace/runtime/kernel.h"

namespace millrace {

// k, an attr or a later input.
class TopKInput {
 public:
  // `input` is the one with k in the V2 ops.
  TopKInput(KernelInit& init, int input);

  // The shape of TopK's results. INVALID_ARGUMENT unless 0 <= k <= the length of rows, and indices fit their type.
  StatusOr<Shape> TopK(const KernelContext& ctx) const;
  // k. INVALID_ARGUMENT unless InTopK's inputs are a matrix and a vector of as many rows.
  StatusOr<int64_t> InTopK(const KernelContext& ctx) const;

 private:
  StatusOr<int64_t> K(const KernelContext& ctx) const;

  int input_;  // -1: an attr
  int64_t k_ = 0;
};

}  // namespace millrace
