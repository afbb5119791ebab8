// Offsets of scattered and gathered slices, computed from indices.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Slices of one tensor, each of `size` contiguous elements.
struct SliceAddresses {
  // Marks a slice that is skipped.
  static constexpr int64_t kSkip = -1;

  absl::InlinedVector<int64_t, 16> offsets;  // of each slice's first element, in elements
  int64_t size = 0;
  Shape shape;  // of all slices together: the shape of the updates or of a gather's output
};

// How out-of-range indices are handled.
enum class BadIndices { kFail, kSkip };
// The attr bad_indices_policy of the ScatterNd ops.
StatusOr<BadIndices> ParseBadIndices(absl::string_view policy);

// Rows of dimension `batch_dims` of a tensor, or slices by coordinates, without the indices' values.
struct SliceForm {
  int64_t batches = 1;      // of rows
  int64_t rows = 0;         // of one batch, or all slices
  int64_t count = 0;        // indices, of all batches
  int64_t size = 0;         // elements of a slice
  Shape shape;              // of all chosen slices together
  Shape::Dims coordinates;  // sizes of the dimensions that an index points into
};
// INVALID_ARGUMENT if shapes or types do not fit.
StatusOr<SliceForm> RowSlices(const Shape& params, const Tensor& indices, int64_t batch_dims = 0);
StatusOr<SliceForm> NdSlices(const Shape& params, const Tensor& indices);

// One row of dimension `batch_dims` of `params` per index. The first `batch_dims` dimensions of params and indices are
// equal and are batch dimensions. INVALID_ARGUMENT, naming the index, if it is out of range.
StatusOr<SliceAddresses> RowAddresses(const Shape& params, const Tensor& indices, int64_t batch_dims = 0);

// Each vector of the last dimension of `indices` selects one slice by its leading coordinates.
StatusOr<SliceAddresses> NdAddresses(const Shape& params, const Tensor& indices, BadIndices bad);

}  // namespace millrace
