// Striped locks over the rows of a tensor that is updated in place.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "millrace/base/mutex.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Maps rows (of the first dimension) to stripes: blocks of consecutive rows are assigned round-robin, so that a copy of
// the whole tensor takes one lock per block.
struct RowLayout {
  static constexpr int kStripes = 64;
  static constexpr int64_t kBlockBytes = 16384;

  explicit RowLayout(const Tensor& tensor)
      : rows(tensor.rank() == 0 ? 1 : tensor.dim(0)),
        row_size(tensor.rank() == 0 ? 1 : tensor.shape().Product(1, tensor.rank())),
        block_rows(std::max<int64_t>(
            1, kBlockBytes / std::max<int64_t>(1, row_size * static_cast<int64_t>(SizeOf(tensor.dtype()))))) {}

  int StripeOfRow(int64_t row) const { return static_cast<int>(row / block_rows % kStripes); }
  // The stripe of the row that contains the element at `offset`.
  int StripeOf(int64_t offset) const { return StripeOfRow(offset / std::max<int64_t>(1, row_size)); }

  const int64_t rows;
  const int64_t row_size;  // in elements
  const int64_t block_rows;
};

// The stripes of one variable. To avoid deadlock, a thread that locks stripes of several variables does so in order of
// the variables' addresses, and never holds two stripes of one variable.
class RowLocks {
 public:
  Mutex& stripe(int i) { return stripes_[i].mu; }

 private:
  struct alignas(64) Stripe {
    Mutex mu;
  };
  std::array<Stripe, RowLayout::kStripes> stripes_;
};

}  // namespace millrace
