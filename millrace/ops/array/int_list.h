// Small integer tensors (shapes, axes, paddings) as lists, without heap allocation.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_join.h"
#include "millrace/base/status.h"
#include "millrace/tensor/shape.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

using IntList = absl::InlinedVector<int64_t, 8>;

// The elements of an int8, int16, int32 or int64 tensor of any shape, in order. INVALID_ARGUMENT,
// naming `what`, for another type.
StatusOr<IntList> ReadInts(const Tensor& tensor, absl::string_view what);

// The same, of a tensor that must be a vector.
StatusOr<IntList> ReadIntVector(const Tensor& tensor, absl::string_view what);

// The only element. INVALID_ARGUMENT, naming `what`, if the tensor does not have exactly one.
StatusOr<int64_t> ReadInt(const Tensor& tensor, absl::string_view what);

// Writes a vector of int32 or int64; INVALID_ARGUMENT if a value does not fit into int32.
Status WriteInts(absl::Span<const int64_t> values, Tensor* out);

// Maps an axis in [-rank, rank) to [0, rank); INVALID_ARGUMENT, naming `what`, the axis and the limits, if it is out of
// range.
StatusOr<int> ReadAxis(int64_t axis, int rank, absl::string_view what);

}  // namespace millrace
