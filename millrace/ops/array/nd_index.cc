#include "millrace/ops/array/nd_index.h"

#include "absl/strings/str_join.h"
#include "millrace/ops/kernels/strided_copy.h"

namespace millrace {

StatusOr<NdIndex> NdIndex::Make(const Tensor& indices, const Shape& shape) {
  if (indices.rank() < 1) {
    return InvalidArgument("indices must be at least a vector, got shape ", indices.shape().ToString());
  }
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > shape.rank()) {
    return InvalidArgument("index innermost dimension length must be <= the rank of the tensor: ", depth, " vs. ",
                           shape.rank());
  }
  NdIndex nd;
  nd.indices_ = &indices;
  nd.shape_ = &shape;
  nd.strides_ = RowMajorStrides(shape.dims());
  nd.rows_ = indices.shape().Product(0, indices.rank() - 1);
  nd.depth_ = static_cast<int>(depth);
  nd.slice_ = shape.Product(nd.depth_, shape.rank());
  return nd;
}

StatusOr<Shape> NdIndex::SlicesShape() const {
  Shape::Dims dims(indices_->shape().dims().begin(), indices_->shape().dims().end());
  dims.pop_back();
  for (int i = depth_; i < shape_->rank(); ++i) dims.push_back(shape_->dim(i));
  return Shape::Make(dims);
}

Status NdIndex::CheckUpdates(const Shape& updates) const {
  if (shape_->num_elements() == 0 && updates.num_elements() > 0) {
    return InvalidArgument("Indices and updates specified for empty output shape ", shape_->ToString());
  }
  MR_ASSIGN_OR_RETURN(const Shape wanted, SlicesShape());
  if (updates != wanted) {
    return InvalidArgument("Shapes of updates and indices do not fit: updates must have shape ", wanted.ToString(),
                           " for indices ", indices_->shape().ToString(), " into shape ", shape_->ToString(), ", got ",
                           updates.ToString());
  }
  return absl::OkStatus();
}

template <typename Index>
Status NdIndex::ResolveAs(bool ignore_bad, absl::string_view of_what, Offsets* offsets) const {
  const Index* at = indices_->data<Index>();
  for (int64_t i = 0; i < rows_; ++i, at += depth_) {
    int64_t offset = 0;
    for (int d = 0; d < depth_; ++d) {
      // As unsigned, a negative coordinate is larger than any valid one.
      if (static_cast<uint64_t>(static_cast<int64_t>(at[d])) >= static_cast<uint64_t>(shape_->dim(d))) {
        offset = -1;
        break;
      }
      offset += static_cast<int64_t>(at[d]) * strides_[d];
    }
    if (offset < 0 && !ignore_bad) {
      return InvalidArgument("indices[", RowName(i), "] = [", absl::StrJoin(absl::MakeConstSpan(at, depth_), ", "),
                             "] does not index into ", of_what, " ", shape_->ToString());
    }
    (*offsets)[i] = offset;
  }
  return absl::OkStatus();
}

StatusOr<NdIndex::Offsets> NdIndex::Resolve(bool ignore_bad, absl::string_view of_what) const {
  Offsets offsets(static_cast<size_t>(rows_));
  Status status;
  switch (indices_->dtype()) {
    case DType::kInt16:
      status = ResolveAs<int16_t>(ignore_bad, of_what, &offsets);
      break;
    case DType::kUInt16:
      status = ResolveAs<uint16_t>(ignore_bad, of_what, &offsets);
      break;
    case DType::kInt32:
      status = ResolveAs<int32_t>(ignore_bad, of_what, &offsets);
      break;
    case DType::kInt64:
      status = ResolveAs<int64_t>(ignore_bad, of_what, &offsets);
      break;
    default:
      status = InvalidArgument("indices must not be of type ", indices_->dtype());
  }
  if (!status.ok()) return status;
  return offsets;
}

std::string NdIndex::RowName(int64_t i) const {
  std::string text;
  for (int d = indices_->rank() - 2; d >= 0; --d) {
    text = absl::StrCat(i % indices_->dim(d), text.empty() ? "" : ",", text);
    i /= indices_->dim(d);
  }
  return text;
}

StatusOr<bool> IgnoresBadIndices(const Node& node) {
  const std::string policy = node.AttrOr<std::string>("bad_indices_policy", "");
  if (policy.empty() || policy == "DEFAULT" || policy == "ERROR") return false;
  if (policy == "IGNORE") return true;
  return InvalidArgument("bad_indices_policy must be DEFAULT, ERROR or IGNORE, got '", policy, "'");
}

}  // namespace millrace
