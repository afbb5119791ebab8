// DenseCountSparseOutput, SparseCountSparseOutput and RaggedCountSparseOutput: how often each value occurs in a vector
// or in each row of a matrix, as a sparse tensor.
#include <map>

#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

using CountTypes = Types<int32_t, int64_t, float, double>;

// What is counted: the row of each value.
struct CountedValues {
  const Tensor* values = nullptr;
  std::vector<int64_t> rows = {};  // by value; empty: `width` values for each row
  int64_t width = 1;
  int64_t num_rows = 1;
  bool is_vector = false;

  int64_t RowOf(int64_t i) const { return rows.empty() ? i / width : rows[i]; }
};

StatusOr<CountedValues> DenseCounted(const KernelContext& ctx) {
  const Tensor& values = ctx.input(0);
  if (values.rank() != 1 && values.rank() != 2) {
    return InvalidArgument("Input must be a 1 or 2-dimensional tensor. Got: ", values.shape().ToString());
  }
  const bool is_vector = values.rank() == 1;
  return CountedValues{.values = &values,
                       .width = std::max<int64_t>(values.dim(is_vector ? 0 : 1), 1),
                       .num_rows = is_vector ? 1 : values.dim(0),
                       .is_vector = is_vector};
}

StatusOr<CountedValues> SparseCounted(const KernelContext& ctx) {
  const Tensor &indices = ctx.input(0), &values = ctx.input(1), &shape = ctx.input(2);
  if (indices.rank() != 2) {
    return InvalidArgument("Input indices must be a 2-dimensional tensor. Got: ", indices.shape().ToString());
  }
  if (values.rank() != 1) {
    return InvalidArgument("Input values must be a 1-dimensional tensor. Got: ", values.shape().ToString());
  }
  if (values.dim(0) != indices.dim(0)) {
    return InvalidArgument("Number of values must match first dimension of indices. Got ", values.dim(0),
                           " values, indices shape: ", indices.shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(indices, values, shape));
  if (input.rank() < 1 || input.rank() > 2) {
    return InvalidArgument("The shape argument requires 1 or 2 elements, but has ", input.rank());
  }
  MR_RETURN_IF_ERROR(input.CheckBounds());
  CountedValues counted{.values = &values, .is_vector = input.rank() == 1};
  if (!counted.is_vector) counted.num_rows = input.shape.dim(0);
  for (int64_t i = 0; i < input.count(); ++i) counted.rows.push_back(counted.is_vector ? 0 : input.Index(i, 0));
  return counted;
}

StatusOr<CountedValues> RaggedCounted(const KernelContext& ctx) {
  const Tensor &splits = ctx.input(0), &values = ctx.input(1);
  if (splits.rank() != 1 || splits.dim(0) < 2) {
    return InvalidArgument("Must provide at least 2 elements for the splits argument");
  }
  if (IntAt(splits, 0) != 0) return InvalidArgument("Splits must start with 0, not with ", IntAt(splits, 0));
  const int64_t num_rows = splits.dim(0) - 1;
  if (IntAt(splits, num_rows) != values.num_elements()) {
    return InvalidArgument("Splits must end with the number of values, got ", IntAt(splits, num_rows), " instead of ",
                           values.num_elements());
  }
  CountedValues counted{.values = &values, .num_rows = num_rows};
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t begin = IntAt(splits, row), end = IntAt(splits, row + 1);
    if (end < begin || end > values.num_elements()) return InvalidArgument("Splits must not fall");
    counted.rows.insert(counted.rows.end(), static_cast<size_t>(end - begin), row);
  }
  return counted;
}

class CountSparseOutputKernel : public Kernel {
 public:
  explicit CountSparseOutputKernel(KernelInit& init) {
    init.Attr("minlength", &min_length_);
    init.Attr("maxlength", &max_length_);
    init.Attr("binary_output", &binary_);
    NeedType(init, CountTypes{}, init.output_type(1));
  }

 protected:
  Status Count(KernelContext& ctx, const StatusOr<CountedValues>& counted) const {
    MR_RETURN_IF_ERROR(counted.status());
    const Tensor& weights = ctx.input(ctx.num_inputs() - 1);
    if (weights.num_elements() > 0 && weights.shape() != counted->values->shape()) {
      return InvalidArgument("Weights and values must have the same shape. Weight shape: ", weights.shape().ToString(),
                             "; values shape: ", counted->values->shape().ToString());
    }
    Status status;
    DispatchType(CountTypes{}, ctx.output_type(1),
                 [&](auto tag) { status = CountAs<typename decltype(tag)::type>(ctx, *counted, weights); });
    return status;
  }

 private:
  template <typename T>
  Status CountAs(KernelContext& ctx, const CountedValues& in, const Tensor& weights) const {
    const T* const weight = weights.num_elements() > 0 ? weights.data<T>() : nullptr;
    std::map<std::pair<int64_t, int64_t>, T> bins;  // by row and value
    int64_t largest = 0;
    for (int64_t i = 0; i < in.values->num_elements(); ++i) {
      const int64_t value = IntAt(*in.values, i);
      if (value < 0) return InvalidArgument("Input values must all be non-negative, but value ", i, " is ", value);
      if (max_length_ > 0 && value >= max_length_) continue;
      T& bin = bins[{in.RowOf(i), value}];
      bin = binary_ ? T(1) : static_cast<T>(bin + (weight == nullptr ? T(1) : weight[i]));
      largest = std::max(largest, value);
    }
    const int64_t size = max_length_ > 0 ? max_length_ : std::max(largest + 1, min_length_);
    const int rank = in.is_vector ? 1 : 2;
    MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, 0, static_cast<int64_t>(bins.size()), rank));
    MR_ASSIGN_OR_RETURN(Tensor * counts, ctx.AllocateOutput(1, Shape({static_cast<int64_t>(bins.size())})));
    int64_t* at = indices->data<int64_t>();
    T* count = counts->data<T>();
    for (const auto& [key, sum] : bins) {
      if (!in.is_vector) *at++ = key.first;
      *at++ = key.second;
      *count++ = sum;
    }
    return in.is_vector ? SetShapeOutput(ctx, 2, {size}) : SetShapeOutput(ctx, 2, {in.num_rows, size});
  }

  int64_t min_length_ = -1, max_length_ = -1;
  bool binary_ = false;
};

template <StatusOr<CountedValues> (*kInput)(const KernelContext&)>
class CountKernel : public CountSparseOutputKernel {
 public:
  using CountSparseOutputKernel::CountSparseOutputKernel;
  Status Compute(KernelContext& ctx) override { return Count(ctx, kInput(ctx)); }
};

Status SetCountShapes(ShapeContext& c, int64_t rank) {
  SetSparseOutput(c, 0, PartialShape::kUnknown, rank);
  return absl::OkStatus();
}

Status DenseCountShape(ShapeContext& c) {
  const PartialShape& values = c.input(0);
  if (values.known_rank() && values.rank() != 1 && values.rank() != 2) {
    return InvalidArgument("Input must be a 1 or 2-dimensional tensor. Got: ", values.ToString());
  }
  return SetCountShapes(c, values.known_rank() ? values.rank() : PartialShape::kUnknown);
}

Status SparseCountShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t rank, SparseRank(c, 0));
  return SetCountShapes(c, rank);
}

Status RaggedCountShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  return SetCountShapes(c, 2);
}

}  // namespace

MILLRACE_OP(DenseCountSparseOutput)
    .Input("values: T")
    .Input("weights: output_type")
    .Output("output_indices: int64")
    .Output("output_values: output_type")
    .Output("output_dense_shape: int64")
    .Attr("T: {int32, int64}")
    .Attr("minlength: int >= -1 = -1")
    .Attr("maxlength: int >= -1 = -1")
    .Attr("binary_output: bool")
    .Attr("output_type: {int32, int64, float, double}")
    .Shape(DenseCountShape)
    .NotDifferentiable()
    .Summary("How often each value occurs in a vector or in each row of a matrix, as a sparse tensor.");
MILLRACE_OP(SparseCountSparseOutput)
    .Input("indices: int64")
    .Input("values: T")
    .Input("dense_shape: int64")
    .Input("weights: output_type")
    .Output("output_indices: int64")
    .Output("output_values: output_type")
    .Output("output_dense_shape: int64")
    .Attr("T: {int32, int64}")
    .Attr("minlength: int >= -1 = -1")
    .Attr("maxlength: int >= -1 = -1")
    .Attr("binary_output: bool")
    .Attr("output_type: {int32, int64, float, double}")
    .Shape(SparseCountShape)
    .NotDifferentiable()
    .Summary("How often each value occurs in a sparse vector or in each row of a sparse matrix, as a sparse tensor.");
MILLRACE_OP(RaggedCountSparseOutput)
    .Input("splits: int64")
    .Input("values: T")
    .Input("weights: output_type")
    .Output("output_indices: int64")
    .Output("output_values: output_type")
    .Output("output_dense_shape: int64")
    .Attr("T: {int32, int64}")
    .Attr("minlength: int >= -1 = -1")
    .Attr("maxlength: int >= -1 = -1")
    .Attr("binary_output: bool")
    .Attr("output_type: {int32, int64, float, double}")
    .Shape(RaggedCountShape)
    .NotDifferentiable()
    .Summary("How often each value occurs in each row of a ragged tensor, as a sparse tensor.");
MILLRACE_KERNEL(DenseCountSparseOutput, kCpu, CountKernel<DenseCounted>);
MILLRACE_KERNEL(SparseCountSparseOutput, kCpu, CountKernel<SparseCounted>);
MILLRACE_KERNEL(RaggedCountSparseOutput, kCpu, CountKernel<RaggedCounted>);

}  // namespace millrace::sparse
