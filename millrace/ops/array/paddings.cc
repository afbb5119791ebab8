#include "millrace/ops/array/paddings.h"

#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/partial_dims.h"

namespace millrace {

StatusOr<Paddings> ReadPaddings(const Tensor& tensor, int rank) {
  if (tensor.rank() != 2 || tensor.dim(1) != 2) {
    return InvalidArgument("paddings must be a matrix with 2 columns: ", tensor.shape().ToString());
  }
  if (tensor.dim(0) != rank) {
    return InvalidArgument("The first dimension of paddings must be the rank of inputs: ", tensor.shape().ToString(),
                           " for a rank of ", rank);
  }
  MR_ASSIGN_OR_RETURN(const IntList list, ReadInts(tensor, "paddings"));
  Paddings paddings;
  for (int i = 0; i < rank; ++i) {
    paddings.push_back({list[2 * i], list[2 * i + 1]});
    if (paddings[i].before < 0 || paddings[i].after < 0) {
      return InvalidArgument("Paddings must be non-negative: ", paddings[i].before, " ", paddings[i].after,
                             " for dimension ", i);
    }
  }
  return paddings;
}

StatusOr<Shape> PaddedShape(const Shape& shape, const Paddings& paddings) {
  Shape::Dims dims;
  for (int i = 0; i < shape.rank(); ++i) {
    int64_t n;
    if (__builtin_add_overflow(shape.dim(i), paddings[i].before, &n) ||
        __builtin_add_overflow(n, paddings[i].after, &n)) {
      return InvalidArgument("paddings ", paddings[i].before, " and ", paddings[i].after, " of dimension ", i,
                             " are too large");
    }
    dims.push_back(n);
  }
  return Shape::Make(dims);
}

Status PadShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape list, c.WithRank(1, 2));
  if (list.dim(1) >= 0 && list.dim(1) != 2) {
    return InvalidArgument("paddings must be a matrix with 2 columns: ", list.ToString());
  }
  const PartialShape& in = c.input(0);
  int64_t rank = in.rank();
  if (list.dim(0) >= 0) {
    if (rank >= 0 && rank != list.dim(0)) {
      return InvalidArgument("paddings have ", list.dim(0), " rows for a tensor of rank ", rank);
    }
    rank = list.dim(0);
  }
  if (rank < 0 || rank > Shape::kMaxRank) return absl::OkStatus();
  PartialShape out = PartialShape::UnknownOfRank(static_cast<int>(rank));
  const Tensor* value = c.constant(1);
  if (value != nullptr && in.known_rank()) {
    MR_ASSIGN_OR_RETURN(const Paddings paddings, ReadPaddings(*value, in.rank()));
    for (int i = 0; i < in.rank(); ++i) {
      int64_t border;
      if (__builtin_add_overflow(paddings[i].before, paddings[i].after, &border)) {
        return InvalidArgument("the paddings of dimension ", i, " are too large");
      }
      out.set_dim(i, AddDims(in.dim(i), border));
    }
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

}  // namespace millrace
