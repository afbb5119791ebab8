// SparseFillEmptyRows, SparseFillEmptyRowsGrad.
#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

class SparseFillEmptyRowsKernel : public Kernel {
 public:
  explicit SparseFillEmptyRowsKernel(KernelInit& init) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &values = ctx.input(1), &dense_shape = ctx.input(2), &filler = ctx.input(3);
    if (dense_shape.rank() != 1) {
      return InvalidArgument("dense_shape must be a vector, saw: ", dense_shape.shape().ToString());
    }
    if (indices.rank() != 2) return InvalidArgument("indices must be a matrix, saw: ", indices.shape().ToString());
    if (values.rank() != 1) return InvalidArgument("values must be a vector, saw: ", values.shape().ToString());
    if (indices.dim(0) != values.dim(0)) {
      return InvalidArgument("The length of `values` (", values.dim(0),
                             ") must match the first dimension of `indices` (", indices.dim(0), ").");
    }
    if (indices.dim(1) != dense_shape.dim(0)) {
      return InvalidArgument("The length of `dense_shape` (", dense_shape.dim(0),
                             ") must match the second dimension of `indices` (", indices.dim(1), ").");
    }
    if (filler.rank() != 0) {
      return InvalidArgument("default_value must be a scalar, saw: ", filler.shape().ToString());
    }
    if (dense_shape.dim(0) == 0) return InvalidArgument("Dense shape cannot be empty.");
    const int64_t n = indices.dim(0), rank = indices.dim(1), rows = dense_shape.data<int64_t>()[0];
    if (rows < 0) return InvalidArgument("dense_shape[0] must not be negative: ", rows);
    if (rows == 0 && n != 0) {
      return InvalidArgument("Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = ", n);
    }
    MR_ASSIGN_OR_RETURN(Tensor * empty, ctx.AllocateOutput(2, Shape({rows})));
    MR_ASSIGN_OR_RETURN(Tensor * map, ctx.AllocateOutput(3, Shape({n})));
    // Where each row's entries begin in the output.
    MR_ASSIGN_OR_RETURN(Tensor starts, ctx.AllocateTemp(DType::kInt64, Shape({rows + 1})));
    int64_t* start = starts.data<int64_t>();
    std::fill_n(start, rows + 1, 0);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = indices.data<int64_t>()[i * rank];
      if (row < 0 || row >= rows) {
        return InvalidArgument("indices(", i, ", 0) is invalid: ", row, " >= ", rows);
      }
      ++start[row];
    }
    int64_t total = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t entries = start[row];
      empty->data<bool>()[row] = entries == 0;
      start[row] = total;
      total += std::max<int64_t>(entries, 1);
    }
    MR_ASSIGN_OR_RETURN(Tensor * out_indices, ctx.AllocateOutput(0, Shape({total, rank})));
    MR_ASSIGN_OR_RETURN(Tensor * out_values, ctx.AllocateOutput(1, Shape({total})));
    int64_t* out = out_indices->data<int64_t>();
    for (int64_t row = 0; row < rows; ++row) {
      if (!empty->data<bool>()[row]) continue;
      std::fill_n(out + start[row] * rank, rank, 0);
      out[start[row] * rank] = row;
    }
    const bool known = DispatchMove(values.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t row = 0; row < rows; ++row) {
        if (empty->data<bool>()[row]) out_values->raw<T>()[start[row]] = *filler.raw<T>();
      }
      for (int64_t i = 0; i < n; ++i) {
        const int64_t* row = indices.data<int64_t>() + i * rank;
        const int64_t at = start[*row]++;
        std::copy_n(row, rank, out + at * rank);
        out_values->raw<T>()[at] = values.raw<T>()[i];
        map->data<int64_t>()[i] = at;
      }
    });
    return known ? absl::OkStatus() : Unimplemented("SparseFillEmptyRows does not take ", DTypeName(values.dtype()));
  }
};

class SparseFillEmptyRowsGradKernel : public Kernel {
 public:
  explicit SparseFillEmptyRowsGradKernel(KernelInit& init) { NeedType(init, NumberTypes{}, init.input_type(1)); }

  Status Compute(KernelContext& ctx) override {
    const Tensor &map = ctx.input(0), &grad = ctx.input(1);
    if (map.rank() != 1) return InvalidArgument("reverse_index_map must be a vector, saw: ", map.shape().ToString());
    if (grad.rank() != 1) return InvalidArgument("grad_values must be a vector, saw: ", grad.shape().ToString());
    MR_ASSIGN_OR_RETURN(Tensor * d_values, ctx.AllocateOutput(0, map.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * d_default, ctx.AllocateOutput(1, Shape()));
    MR_ASSIGN_OR_RETURN(Tensor taken_rows, ctx.AllocateTemp(DType::kBool, grad.shape()));
    bool* const taken = taken_rows.data<bool>();
    std::fill_n(taken, grad.dim(0), false);
    for (int64_t i = 0; i < map.dim(0); ++i) {
      const int64_t at = map.data<int64_t>()[i];
      if (at < 0 || at >= grad.dim(0)) {
        return InvalidArgument("Elements in reverse index must be in [0, ", grad.dim(0), ") but got ", at);
      }
      taken[at] = true;
    }
    DispatchType(NumberTypes{}, grad.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ComputeType<T>;
      const T* const g = grad.data<T>();
      const int64_t* const at = map.data<int64_t>();
      T* const values = d_values->data<T>();
      const int64_t n = map.dim(0), rows = grad.dim(0);
      for (int64_t i = 0; i < n; ++i) values[i] = g[at[i]];
      C rest = C(0);
      for (int64_t i = 0; i < rows; ++i) rest += taken[i] ? C(0) : static_cast<C>(g[i]);
      d_default->scalar<T>() = static_cast<T>(rest);
    });
    return absl::OkStatus();
  }
};

Status SparseFillEmptyRowsShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t rank, SparseRank(c, 0));
  MR_RETURN_IF_ERROR(c.WithRank(3, 0).status());
  SetSparseOutput(c, 0, -1, rank, false);
  std::vector<int64_t> shape;
  const bool known = c.ConstantInts(2, &shape) && !shape.empty() && shape[0] >= 0;
  c.set_output(2, PartialShape({known ? shape[0] : -1}));
  c.set_output(3, PartialShape({c.input(0).known_rank() ? c.input(0).dim(0) : -1}));
  return absl::OkStatus();
}
Status SparseFillEmptyRowsGradShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape map, c.WithRank(0, 1));
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  c.set_output(0, std::move(map));
  c.set_output(1, PartialShape::Scalar());
  return absl::OkStatus();
}

Status SparseFillEmptyRowsGradient(GradientContext& c) {
  Node* const back = c.AddNode("SparseFillEmptyRowsGrad", {c.output(3), c.grad(1)});
  if (back == nullptr) return c.status();
  c.set_input_grad(1, Endpoint{back, 0});
  c.set_input_grad(3, Endpoint{back, 1});
  return c.status();
}

}  // namespace

MILLRACE_OP(SparseFillEmptyRows)
    .Input("indices: int64")
    .Input("values: T")
    .Input("dense_shape: int64")
    .Input("default_value: T")
    .Output("output_indices: int64")
    .Output("output_values: T")
    .Output("empty_row_indicator: bool")
    .Output("reverse_index_map: int64")
    .Attr("T: type")
    .Shape(SparseFillEmptyRowsShape)
    .Gradient(SparseFillEmptyRowsGradient)
    .Summary("Adds a default entry to each empty row of a sparse tensor");
MILLRACE_OP(SparseFillEmptyRowsGrad)
    .Input("reverse_index_map: int64")
    .Input("grad_values: T")
    .Output("d_values: T")
    .Output("d_default_value: T")
    .Attr("T: type")
    .Shape(SparseFillEmptyRowsGradShape)
    .NotDifferentiable()
    .Summary("The gradient of SparseFillEmptyRows");

MILLRACE_KERNEL(SparseFillEmptyRows, kCpu, SparseFillEmptyRowsKernel);
MILLRACE_KERNEL(SparseFillEmptyRowsGrad, kCpu, SparseFillEmptyRowsGradKernel);

}  // namespace millrace::sparse
