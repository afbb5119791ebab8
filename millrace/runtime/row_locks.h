// Locks over the rows of a tensor that is updated in place.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "millrace/base/mutex.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// How the rows (of the first dimension) of a tensor share the stripes: blocks of neighbouring rows in turn, so
// that a copy of the whole takes one lock for each block.
struct RowLayout {
  static constexpr int kStripes = 64;
  static constexpr int64_t kBlockBytes = 16384;

  explicit RowLayout(const Tensor& tensor)
      : rows(tensor.rank() == 0 ? 1 : tensor.dim(0)),
        row_size(tensor.rank() == 0 ? 1 : tensor.shape().Product(1, tensor.rank())),
        block_rows(std::max<int64_t>(
            1, kBlockBytes / std::max<int64_t>(1, row_size * static_cast<int64_t>(SizeOf(tensor.dtype()))))) {}

  int StripeOfRow(int64_t row) const { return static_cast<int>(row / block_rows % kStripes); }
  // Of the row in which the element at `offset` lies.
  int StripeOf(int64_t offset) const { return StripeOfRow(offset / std::max<int64_t>(1, row_size)); }

  const int64_t rows;
  const int64_t row_size;  // in elements
  const int64_t block_rows;
};

// The stripes of one variable. Whoever holds several, of several variables, takes them in the order of the
// variables' addresses, and never two of one variable.
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
