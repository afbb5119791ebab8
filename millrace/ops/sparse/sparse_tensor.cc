// SparseToDense, SparseReorder.
#include <algorithm>
#include <numeric>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {
namespace {

// Indices as a scalar, a vector or a matrix of one row per value; none if they have no elements.
struct IndexRows {
  int64_t count, width;
  explicit IndexRows(const Tensor& indices)
      : count(indices.rank() == 0           ? 1
              : indices.num_elements() == 0 ? 0
                                            : indices.dim(0)),
        width(indices.rank() == 2 ? indices.dim(1) : 1) {}
};

class SparseToDenseKernel : public Kernel {
 public:
  explicit SparseToDenseKernel(KernelInit& init) { init.Attr("validate_indices", &validate_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &output_shape = ctx.input(1), &values = ctx.input(2), &other = ctx.input(3);
    if (indices.rank() > 2) {
      return InvalidArgument("sparse_indices should be a scalar, vector, or matrix, got shape ",
                             indices.shape().ToString());
    }
    const IndexRows rows(indices);
    if (output_shape.rank() != 1 || output_shape.num_elements() != rows.width) {
      return InvalidArgument("output_shape has incorrect number of elements: ", output_shape.num_elements(),
                             " should be: ", rows.width);
    }
    if (values.rank() > 1 || (values.rank() == 1 && values.dim(0) != rows.count)) {
      return InvalidArgument("sparse_values has incorrect shape ", values.shape().ToString(), ", should be [] or [",
                             rows.count, "]");
    }
    if (other.rank() != 0) return InvalidArgument("default_value should be a scalar.");
    Shape::Dims dims;
    for (int64_t i = 0; i < rows.width; ++i) dims.push_back(IntAt(output_shape, i));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    std::vector<int64_t> offsets(rows.count);
    MR_RETURN_IF_ERROR(Offsets(indices, rows, shape, &offsets));
    MR_ASSIGN_OR_RETURN(Tensor * dense, ctx.AllocateOutput(0, shape));
    const bool known = DispatchMove(dense->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = dense->raw<T>();
      std::fill_n(out, shape.num_elements(), *other.raw<T>());
      const T* from = values.raw<T>();
      const int64_t step = values.rank() == 0 ? 0 : 1;
      for (int64_t i = 0; i < rows.count; ++i) out[offsets[i]] = from[i * step];
    });
    return known ? absl::OkStatus() : Unimplemented("SparseToDense does not take ", DTypeName(dense->dtype()));
  }

 private:
  // The output offset of each row of indices.
  Status Offsets(const Tensor& indices, const IndexRows& rows, const Shape& shape,
                 std::vector<int64_t>* offsets) const {
    for (int64_t i = 0; i < rows.count; ++i) {
      int64_t at = 0;
      for (int64_t d = 0; d < rows.width; ++d) {
        const int64_t index = IntAt(indices, i * rows.width + d);
        if (index < 0 || index >= shape.dim(static_cast<int>(d))) {
          return InvalidArgument("indices[", i, "] is out of bounds: index ", index, " in dimension ", d,
                                 " of the output shape ", shape.ToString());
        }
        at = at * shape.dim(static_cast<int>(d)) + index;
      }
      if (validate_ && i > 0 && at <= (*offsets)[i - 1]) {
        return InvalidArgument("indices[", i, "] is ", at == (*offsets)[i - 1] ? "repeated" : "out of order",
                               ". Many sparse ops require sorted indices.");
      }
      (*offsets)[i] = at;
    }
    return absl::OkStatus();
  }

  bool validate_ = true;
};

Status SparseToDenseShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(1));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

Status SparseToDenseGradient(GradientContext& c) {
  const Endpoint indices = c.input(0), g = c.grad();
  const Endpoint columns = c.Op("Reshape", {c.Op("Shape", {c.input(1)}), c.Ints({1})});
  const Endpoint rows = c.Reshape(indices, c.Op("ConcatV2", {c.Ints({-1}), columns, c.Scalar<int32_t>(0)}));
  const Endpoint picked = c.Op("GatherNd", {g, rows});
  const PartialShape& values = c.input(2).shape();
  const Endpoint all = c.Op("Range", {c.Scalar<int32_t>(0), c.Rank(g), c.Scalar<int32_t>(1)});
  const Endpoint total = c.Op("Sum", {g, all}), of_values = c.Op("Sum", {picked, c.Scalar<int32_t>(0)});
  c.set_input_grad(2, values.known_rank() && values.rank() == 0 ? of_values : c.Reshape(picked, c.Shape(c.input(2))));
  c.set_input_grad(3, c.Sub(total, of_values));
  return c.status();
}

class SparseReorderKernel : public Kernel {
 public:
  explicit SparseReorderKernel(KernelInit& init) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &values = ctx.input(1), &shape = ctx.input(2);
    if (indices.rank() != 2) {
      return InvalidArgument("Input indices should be a matrix but received shape: ", indices.shape().ToString());
    }
    if (values.rank() != 1 || values.dim(0) != indices.dim(0)) {
      return InvalidArgument("Input values should be a vector of length ", indices.dim(0),
                             " but received shape: ", values.shape().ToString());
    }
    if (shape.rank() != 1 || shape.dim(0) != indices.dim(1)) {
      return InvalidArgument("Input shape should be a vector of length ", indices.dim(1),
                             " but received shape: ", shape.shape().ToString());
    }
    const int64_t n = indices.dim(0), width = indices.dim(1);
    const int64_t* index = indices.data<int64_t>();
    for (int64_t i = 0; i < n * width; ++i) {
      if (index[i] < 0 || index[i] >= shape.data<int64_t>()[i % width]) {
        return InvalidArgument("indices[", i / width, ",", i % width, "] is out of bounds: ", index[i],
                               " is not in [0, ", shape.data<int64_t>()[i % width], ")");
      }
    }
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return std::lexicographical_compare(index + a * width, index + (a + 1) * width, index + b * width,
                                          index + (b + 1) * width);
    });
    MR_ASSIGN_OR_RETURN(Tensor * out_indices, ctx.AllocateOutput(0, indices.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out_values, ctx.AllocateOutput(1, values.shape()));
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(index + order[i] * width, width, out_indices->data<int64_t>() + i * width);
    }
    const bool known = DispatchMove(values.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) out_values->raw<T>()[i] = values.raw<T>()[order[i]];
    });
    return known ? absl::OkStatus() : Unimplemented("SparseReorder does not take ", DTypeName(values.dtype()));
  }
};

Status SparseReorderShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape indices, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(PartialShape values, c.WithRank(1, 1));
  c.set_output(0, std::move(indices));
  c.set_output(1, std::move(values));
  return absl::OkStatus();
}

// Restores the original order.
Status SparseReorderGradient(GradientContext& c) {
  const Endpoint zero = c.Scalar<int32_t>(0);
  const Endpoint places = c.Op("Range", {zero, c.Op("Size", {c.input(1)}), c.Scalar<int32_t>(1)});
  Node* const moved = c.AddNode("SparseReorder", {c.input(0), places, c.input(2)});
  if (moved == nullptr) return c.status();
  const Endpoint back = c.Op("InvertPermutation", {Endpoint{moved, 1}});
  c.set_input_grad(1, c.Op("GatherV2", {c.grad(1), back, zero}));
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseToDense)
    .Input("sparse_indices: Tindices")
    .Input("output_shape: Tindices")
    .Input("sparse_values: T")
    .Input("default_value: T")
    .Output("dense: T")
    .Attr("validate_indices: bool = true")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Shape(SparseToDenseShape)
    .Gradient(SparseToDenseGradient)
    .Summary("A dense tensor with values at the given indices and a default elsewhere");
MILLRACE_OP(SparseReorder)
    .Input("input_indices: int64")
    .Input("input_values: T")
    .Input("input_shape: int64")
    .Output("output_indices: int64")
    .Output("output_values: T")
    .Attr("T: type")
    .Shape(SparseReorderShape)
    .Gradient(SparseReorderGradient)
    .Summary("A sparse tensor with its entries in row-major order");

MILLRACE_KERNEL(SparseToDense, kCpu, SparseToDenseKernel);
MILLRACE_KERNEL(SparseReorder, kCpu, SparseReorderKernel);

}  // namespace millrace
