// Where scattered updates go and gathered values come from: indices turned into addresses.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Slices of one tensor, each `size` elements in a row.
struct SliceAddresses {
  // Marks a slice that is to be left out.
  static constexpr int64_t kSkip = -1;

  absl::InlinedVector<int64_t, 16> offsets;  // of each slice's first element, in elements
  int64_t size = 0;
  Shape shape;  // of all slices together: that of the updates, or of what a gather gives
};

// What to do with indices that point outside.
enum class BadIndices { kFail, kSkip };
// The attr bad_indices_policy of the ScatterNd ops.
StatusOr<BadIndices> ParseBadIndices(absl::string_view policy);

// Rows of dimension `batch_dims` of `params`: one for each index. The first `batch_dims` dimensions
// of params and indices agree and are walked together. INVALID_ARGUMENT names an index outside.
StatusOr<SliceAddresses> RowAddresses(const Shape& params, const Tensor& indices,
                                      int64_t batch_dims = 0);

// Each vector of the last dimension of `indices` names one slice by its leading coordinates.
StatusOr<SliceAddresses> NdAddresses(const Shape& params, const Tensor& indices, BadIndices bad);

}  // namespace millrace
