// Accumulation of gradients for one update, dense or sparse.
#pragma once

#include <memory>
#include <vector>

#include "millrace/base/shard_tree.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// An incoming gradient. A sparse one has indices and optionally the dense shape; in fixed order it is that of some
// shards.
struct GradientPart {
  const Tensor* values = nullptr;
  const Tensor* indices = nullptr;
  const Tensor* shape = nullptr;
  ShardRange shards = {};
};

// Not thread-safe.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  // INVALID_ARGUMENT, with no change, if the shape is incompatible.
  virtual Status Add(const GradientPart& part) = 0;
  // Returns the sum since the last call, divided by the number of gradients if `mean`: {values}, or {indices, values,
  // shape} if sparse.
  virtual StatusOr<std::vector<Tensor>> Take(bool mean) = 0;

  // Sums dense tensors of `shape`, of a type in FloatTypes.
  static std::unique_ptr<GradientSum> Dense(DType dtype, const PartialShape& shape);
  // Sums rows: each index has its own sum and, for the mean, its own count.
  static std::unique_ptr<GradientSum> Sparse(DType dtype, const PartialShape& shape);
};

}  // namespace millrace
