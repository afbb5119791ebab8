// Row splits of ragged tensors: row i has the values from splits[i] up to splits[i + 1].
#pragma once

#include <vector>

#include "millrace/runtime/kernel.h"
#include "millrace/tensor/dispatch.h"

namespace millrace::ragged {

using Splits = std::vector<int64_t>;

// The elements of an int32 or int64 tensor.
Splits IntsOf(const Tensor& t);

// Row splits, checked: they start with 0, do not fall, and end at `values` (any number if -1).
StatusOr<Splits> SplitsOf(const Tensor& t, int64_t values = -1);
// Inputs first, first + 1, ... as the nested splits of a ragged tensor with that many outer values in its last level.
StatusOr<std::vector<Splits>> NestedSplits(const KernelContext& ctx, int first, int count, const Tensor& values);

// Sets output i, whose type is int32 or int64.
Status GiveInts(KernelContext& ctx, int i, const Splits& values);

// Copies rows [begin, end) of `from` to row `at` of `to`.
void CopyRows(const Tensor& from, int64_t begin, int64_t end, Tensor* to, int64_t at);
// `t` with another first dimension.
StatusOr<Shape> WithRows(const Tensor& t, int64_t rows);

}  // namespace millrace::ragged
