// Coordinates that select slices of a tensor, shared by GatherNd and the scatter ops.
#pragma once

#include <string>

#include "absl/container/inlined_vector.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// `indices` of shape [..., depth] into a tensor of shape `shape`: each row selects a slice of shape shape[depth:].
// Refers to `indices` and `shape`, which must outlive it.
class NdIndex {
 public:
  // INVALID_ARGUMENT when the indices are a scalar or have more coordinates than the tensor dimensions.
  static StatusOr<NdIndex> Make(const Tensor& indices, const Shape& shape);

  int64_t rows() const { return rows_; }
  int depth() const { return depth_; }
  // Elements of one slice.
  int64_t slice() const { return slice_; }
  // indices.shape[:-1] + shape[depth:], the shape of all slices together.
  StatusOr<Shape> SlicesShape() const;

  // INVALID_ARGUMENT unless updates of this shape are slices for all indices.
  Status CheckUpdates(const Shape& updates) const;

  // The offset of each row's slice, in elements. A row with a coordinate out of range gives -1 if `ignore_bad`,
  // otherwise INVALID_ARGUMENT, naming it and `of_what`.
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

// The attr bad_indices_policy: true if out-of-range indices are ignored (or read as zeros), false if they are errors.
StatusOr<bool> IgnoresBadIndices(const Node& node);

}  // namespace millrace
