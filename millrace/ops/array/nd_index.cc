#include "millrace/ops/array/nd_index.h"

namespace millrace {

StatusOr<NdIndex> NdIndex::Make(const Tensor& indices, const Shape& shape) {
  if (indices.rank() < 1) {
    return InvalidArgument("indices must be at least a vector, got shape ",
                           indices.shape().ToString());
  }
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > shape.rank()) {
    return InvalidArgument("index innermost dimension length must be <= the rank of the tensor: ",
                           depth, " vs. ", shape.rank());
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
