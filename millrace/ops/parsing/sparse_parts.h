// Splitting a sparse tensor into rows, and stacking sparse tensors.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

struct SparsePart {
  Tensor indices, values, shape;
};

// INVALID_ARGUMENT unless they are a matrix and two vectors.
Status CheckSparseInputs(const Tensor& indices, const Tensor& values, const Tensor& shape);

// One part per row of the first dimension. INVALID_ARGUMENT if indices are out of bounds, out of order or repeated.
StatusOr<std::vector<SparsePart>> SplitSparseRows(const Tensor& indices, const Tensor& values, const Tensor& shape);

// Sets outputs 0 to 2 to the stacked parts: as many as `batch` has elements and at least one, with their batch
// coordinates in front of their own; the shape is that of the largest part. INVALID_ARGUMENT if their ranks differ.
Status JoinSparseParts(KernelContext& ctx, absl::Span<const int64_t> batch, const std::vector<SparsePart>& parts);

}  // namespace millrace
