// Rows of coordinates that name slices of a tensor: what GatherNd and the scatters share.
#pragma once

#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_join.h"
#include "millrace/ops/kernels/strided_copy.h"
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

  // Where the slice of row i begins, in elements; -1 when a coordinate is out of range.
  template <typename Index>
  int64_t Offset(int64_t i) const {
    const Index* at = indices_->data<Index>() + i * depth_;
    int64_t offset = 0;
    for (int d = 0; d < depth_; ++d) {
      if (static_cast<uint64_t>(static_cast<int64_t>(at[d])) >= static_cast<uint64_t>(shape_->dim(d))) {
        return -1;
      }
      offset += at[d] * strides_[d];
    }
    return offset;
  }

  // Says that row i is out of range.
  template <typename Index>
  Status OutOfRange(int64_t i, absl::string_view of_what) const {
    const Index* at = indices_->data<Index>() + i * depth_;
    return InvalidArgument("indices[", RowName(i), "] = [",
                           absl::StrJoin(absl::MakeConstSpan(at, depth_), ", "),
                           "] does not index into ", of_what, " ", shape_->ToString());
  }

 private:
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
