// Stacking and padding of tensors.
#pragma once

#include "absl/types/span.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Copies all elements of `from` to `to`, which has the same type and enough space, starting at element `at`.
void PutElements(const Tensor& from, Tensor* to, int64_t at);

// All zero, false or the empty string.
StatusOr<Tensor> Zeros(DType dtype, const Shape& shape, Allocator* allocator);

// Stacks tensors of one type and shape along a new first dimension. `shape` is their shape, which is needed if there
// are none.
StatusOr<Tensor> StackRows(DType dtype, const Shape& shape, absl::Span<const Tensor* const> rows, Allocator* allocator);
// Stacks tensors of one type and rank along a new first dimension, zero-padding each dimension to the longest. `shape`
// is their known shape; if there are no tensors, its unknown dimensions become 0.
StatusOr<Tensor> StackPadded(DType dtype, const PartialShape& shape, absl::Span<const Tensor* const> rows,
                             Allocator* allocator);

// Row i of the first dimension. Shares memory if the row is aligned, otherwise copies it.
Tensor AlignedRow(const Tensor& rows, int64_t i);

}  // namespace millrace
