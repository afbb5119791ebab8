// Rows of coordinates that name slices of a tensor: what GatherNd and the scatters share.
#pragma once

#include <string>

#include "absl/container/inlined_vector.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// indices of shape [..., depth] over a tensor of shape `shape`: each row names a slice of
// shape[depth:]. Refers to `indices` and `shape`, which outlive it.
class NdIndex {
 public:
  // INVALID_ARGUMENT when the indices are a scalar or have more coordinates than the tensor dimensions.
  static StatusOr<NdIndex> Make(const Tensor& indices, const Shape& shape);

  int64_t rows() const { return rows_; }
  int depth() const { return depth_; }
  // Elements of one slice.
  int64_t slice() const { return slice_; }
  // indices.shape[:-1] + shape[depth:]: that of all slices together.
  StatusOr<Shape> SlicesShape() const;

  // Where the slice of each row begins, in elements. For a row with a coordinate out of range: -1 when
  // `ignore_bad`, otherwise INVALID_ARGUMENT, which names it and `of_what`.
  using Offsets = absl::InlinedVector<int64_t, 32>;
  StatusOr<Offsets> Resolve(bool ignore_bad, absl::string_view of_what) const;

 private:
  template <typename Index>
  Status ResolveAs(bool ignore_bad, absl::string_view of_what, Offsets* offsets) const;
  std::string RowName(int64_t i) const;

  const Tensor* indices_ = nullptr;
  const Shape* shape_ = nullptr;
  absl::InlinedVector<int64_t, 8> strides_;
  int64_t rows_ = 0;
  int depth_ = 0;
  int64_t slice_ = 1;
};

// The attr bad_indices_policy: true when slices of indices that are out of range are left out (or read
// as zeros), false when they are errors.
StatusOr<bool> IgnoresBadIndices(const Node& node);

}  // namespace millrace
