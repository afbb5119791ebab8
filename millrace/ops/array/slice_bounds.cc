#include "millrace/ops/array/slice_bounds.h"

namespace millrace {

StatusOr<int64_t> SliceSize(int i, int64_t begin, int64_t size, int64_t dim) {
  if (begin < 0 || begin > dim) {
    return InvalidArgument("Expected begin[", i, "] in [0, ", dim, "], but got ", begin);
  }
  if (size == -1) return dim - begin;
  if (size < 0 || size > dim - begin) {
    return InvalidArgument("Expected size[", i, "] in [0, ", dim - begin, "], but got ", size);
  }
  return size;
}

StatusOr<Shape> SlicedShape(const Shape& whole, const Tensor& begin_tensor, const Tensor& size_tensor, IntList* begin) {
  MR_ASSIGN_OR_RETURN(*begin, ReadIntVector(begin_tensor, "begin"));
  MR_ASSIGN_OR_RETURN(const IntList size, ReadIntVector(size_tensor, "size"));
  const int rank = whole.rank();
  if (static_cast<int>(begin->size()) != rank || static_cast<int>(size.size()) != rank) {
    return InvalidArgument("Expected begin and size arguments to be 1-D tensors of size ", rank, ", but got sizes ",
                           begin->size(), " and ", size.size(), " instead.");
  }
  Shape shape = whole;
  for (int i = 0; i < rank; ++i) {
    MR_ASSIGN_OR_RETURN(const int64_t n, SliceSize(i, (*begin)[i], size[i], whole.dim(i)));
    shape.set_dim(i, n);
  }
  return shape;
}

Status SetSlicedShape(ShapeContext& c, const PartialShape& whole, int begin, int size) {
  // Any of the three determines the rank.
  int rank = whole.rank();
  for (const int i : {begin, size}) {
    MR_ASSIGN_OR_RETURN(PartialShape list, c.WithRank(i, 1));
    if (list.dim(0) < 0) continue;
    if (rank >= 0 && rank != list.dim(0)) {
      return InvalidArgument("begin and size must have ", rank, " elements, got ", list.dim(0));
    }
    if (list.dim(0) > Shape::kMaxRank) return InvalidArgument("too many dimensions: ", list.dim(0));
    rank = static_cast<int>(list.dim(0));
  }
  if (rank < 0) return absl::OkStatus();
  PartialShape out = PartialShape::UnknownOfRank(rank);
  const Tensor* begin_value = c.constant(begin);
  const Tensor* size_value = c.constant(size);
  if (size_value != nullptr) {
    MR_ASSIGN_OR_RETURN(const IntList sizes, ReadIntVector(*size_value, "size"));
    IntList begins;
    if (begin_value != nullptr) {
      MR_ASSIGN_OR_RETURN(begins, ReadIntVector(*begin_value, "begin"));
    }
    for (int i = 0; i < rank; ++i) {
      if (sizes[i] < -1) return InvalidArgument("size[", i, "] must not be ", sizes[i]);
      out.set_dim(i, sizes[i]);
      if (!begins.empty() && whole.known_rank() && whole.dim(i) >= 0) {
        MR_ASSIGN_OR_RETURN(const int64_t n, SliceSize(i, begins[i], sizes[i], whole.dim(i)));
        out.set_dim(i, n);
      }
    }
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

}  // namespace millrace
