// Gradients on their way to one update: dense ones, or rows.
#pragma once

#include <memory>
#include <vector>

#include "millrace/tensor/tensor.h"

namespace millrace {

// A gradient as it comes in. Rows have indices and perhaps the shape of the whole.
struct GradientPart {
  const Tensor* values = nullptr;
  const Tensor* indices = nullptr;
  const Tensor* shape = nullptr;
};

// Not thread-safe.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  // INVALID_ARGUMENT, and no change, when it does not fit.
  virtual Status Add(const GradientPart& part) = 0;
  // What was added since the last time, divided, if `mean`, by how often: {values}, or {indices,
  // values, shape}.
  virtual StatusOr<std::vector<Tensor>> Take(bool mean) = 0;

  // Sums tensors of `shape`. The types are those of FloatTypes.
  static std::unique_ptr<GradientSum> Dense(DType dtype, const PartialShape& shape);
  // Sums rows: each index has a sum and, for its mean, a count of its own.
  static std::unique_ptr<GradientSum> Sparse(DType dtype, const PartialShape& shape);
};

}  // namespace millrace
