// A sparse tensor as three kernel inputs.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace::sparse {

struct SparseInput {
  const Tensor* indices = nullptr;  // int64, or int32 if the op allows it: use Index()
  const Tensor* values = nullptr;
  Shape shape;

  int64_t count() const { return indices->dim(0); }
  int rank() const { return static_cast<int>(indices->dim(1)); }
  // Only for indices of int64.
  const int64_t* Row(int64_t i) const { return indices->data<int64_t>() + i * rank(); }
  int64_t Index(int64_t i, int d) const { return IntAt(*indices, i * rank() + d); }

  // INVALID_ARGUMENT, naming the first index that is outside the shape.
  Status CheckBounds() const {
    for (int64_t i = 0; i < count(); ++i) {
      for (int d = 0; d < rank(); ++d) {
        const int64_t at = Index(i, d);
        if (at < 0 || at >= shape.dim(d)) {
          return InvalidArgument("indices[", i, ",", d, "] is out of bounds: ", at, " is not in [0, ", shape.dim(d),
                                 ")");
        }
      }
    }
    return absl::OkStatus();
  }
  // Entry i's offset in the dense tensor. Bounds must have been checked.
  int64_t Offset(int64_t i) const {
    int64_t at = 0;
    for (int d = 0; d < rank(); ++d) at = at * shape.dim(d) + Index(i, d);
    return at;
  }
};

// A shape from a vector of dimensions. INVALID_ARGUMENT if they are not a valid shape.
inline StatusOr<Shape> ReadShape(const Tensor& t, const char* name) {
  if (t.rank() != 1) return InvalidArgument(name, " should be a vector but received shape ", t.shape().ToString());
  Shape::Dims dims;
  if (t.dim(0) > Shape::kMaxRank) return InvalidArgument(name, " has too many dimensions: ", t.dim(0));
  for (int64_t i = 0; i < t.dim(0); ++i) dims.push_back(IntAt(t, i));
  return Shape::Make(dims);
}

// The three tensors, checked against each other; indices may still be out of bounds.
inline StatusOr<SparseInput> ReadSparse(const Tensor& indices, const Tensor& values, const Tensor& shape) {
  if (indices.rank() != 2) {
    return InvalidArgument("Input indices should be a matrix but received shape ", indices.shape().ToString());
  }
  if (values.rank() != 1) {
    return InvalidArgument("Input values should be a vector but received shape ", values.shape().ToString());
  }
  if (indices.dim(0) != values.dim(0)) {
    return InvalidArgument("indices and values should have as many rows, but have ", indices.dim(0), " and ",
                           values.dim(0));
  }
  SparseInput input{&indices, &values, {}};
  MR_ASSIGN_OR_RETURN(input.shape, ReadShape(shape, "Input shape"));
  if (indices.dim(1) != input.shape.rank()) {
    return InvalidArgument("Index rank ", indices.dim(1), " and shape rank ", input.shape.rank(), " do not match");
  }
  return input;
}
inline StatusOr<SparseInput> ReadSparse(const KernelContext& ctx, int first) {
  return ReadSparse(ctx.input(first), ctx.input(first + 1), ctx.input(first + 2));
}

inline int CompareRows(const int64_t* a, const int64_t* b, int width) {
  for (int d = 0; d < width; ++d) {
    if (a[d] != b[d]) return a[d] < b[d] ? -1 : 1;
  }
  return 0;
}

// The order of entries in a stable sort by the given columns.
inline std::vector<int64_t> SortedBy(const SparseInput& s, const std::vector<int>& columns) {
  std::vector<int64_t> order(s.count());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    for (int d : columns) {
      if (s.Index(a, d) != s.Index(b, d)) return s.Index(a, d) < s.Index(b, d);
    }
    return false;
  });
  return order;
}

inline StatusOr<Tensor*> AllocateIndices(KernelContext& ctx, int output, int64_t count, int rank) {
  return ctx.AllocateOutput(output, Shape({count, rank}));
}
inline Status SetShapeOutput(KernelContext& ctx, int output, absl::Span<const int64_t> dims) {
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(output, Shape({static_cast<int64_t>(dims.size())})));
  std::copy(dims.begin(), dims.end(), out->data<int64_t>());
  return absl::OkStatus();
}

// Checks the ranks of a sparse tensor's inputs, and returns its number of dimensions, or -1 if unknown.
inline StatusOr<int64_t> SparseRank(ShapeContext& c, int first) {
  MR_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(first, 2));
  MR_RETURN_IF_ERROR(c.WithRank(first + 1, 1).status());
  MR_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(first + 2, 1));
  return std::max(indices.dim(1), shape.dim(0));
}
// Sets the outputs from `first` on to a sparse tensor of `count` entries.
inline void SetSparseOutput(ShapeContext& c, int first, int64_t count, int64_t rank, bool with_shape = true) {
  c.set_output(first, PartialShape({count, rank}));
  c.set_output(first + 1, PartialShape({count}));
  if (with_shape) c.set_output(first + 2, PartialShape({rank}));
}

// Fails `init` unless the values are of one of the types.
template <typename AllowedTypes>
void NeedType(KernelInit& init, AllowedTypes types, DType dtype) {
  if (!DispatchType(types, dtype, [](auto) {})) FailDType(init, dtype);
}

}  // namespace millrace::sparse
