// Tensors put together from others, and zeros to fill up with.
#pragma once

#include "absl/types/span.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Copies all elements of `from` to `to`, of the same type, starting at its element `at`. There is
// room.
void CopyElements(const Tensor& from, Tensor* to, int64_t at);

// Sets elements [begin, end) to zero, false or the empty string.
void ZeroElements(Tensor* tensor, int64_t begin, int64_t end);
StatusOr<Tensor> Zeros(DType dtype, const Shape& shape, Allocator* allocator);

// Tensors of one type and shape along a new first dimension. `shape` is what they have, also when
// there are none.
StatusOr<Tensor> StackRows(DType dtype, const Shape& shape, absl::Span<const Tensor* const> rows,
                           Allocator* allocator);
// Tensors of one type and rank along a new first dimension, each filled up with zeros at the end of
// its dimensions to the longest. `shape` says what is known of them; what it does not is 0 when
// there are none.
StatusOr<Tensor> StackPadded(DType dtype, const PartialShape& shape,
                             absl::Span<const Tensor* const> rows, Allocator* allocator);

// Row i of the first dimension. Shares memory when that keeps the alignment kernels like.
Tensor AlignedRow(const Tensor& rows, int64_t i);

}  // namespace millrace
