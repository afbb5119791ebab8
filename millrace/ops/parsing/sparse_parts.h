// A batch of sparse tensors, and the one with a dimension more that they make.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

struct SparsePart {
  Tensor indices, values, shape;
};

// INVALID_ARGUMENT unless a matrix and two vectors.
Status CheckSparseInputs(const Tensor& indices, const Tensor& values, const Tensor& shape);

// One part for each entry of the first dimension. INVALID_ARGUMENT when indices are out of bounds, out of order or
// repeated.
StatusOr<std::vector<SparsePart>> SplitSparseRows(const Tensor& indices, const Tensor& values, const Tensor& shape);

// Sets outputs 0 to 2: the parts, at least one and as many as `batch` has places, below each other, with their place in
// the batch before their own coordinates; as large as the largest of them. INVALID_ARGUMENT when their ranks differ.
Status JoinSparseParts(KernelContext& ctx, absl::Span<const int64_t> batch, const std::vector<SparsePart>& parts);

}  // namespace millrace
