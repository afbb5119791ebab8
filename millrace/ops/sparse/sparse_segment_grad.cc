// The gradient ops of SparseSegmentSum, SparseSegmentMean and SparseSegmentSqrtN: dense, or only the non-zero rows.
#include <algorithm>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/sparse/sparse_segment.h"

namespace millrace {
namespace {

// The scale factors of the segments; segment ids may be unsorted here.
StatusOr<std::vector<double>> SegmentFactors(const Tensor& grad, const Tensor& indices, const Tensor& ids,
                                             SegmentScale scale) {
  if (grad.rank() < 1) return InvalidArgument("grad must have at least one dimension");
  if (indices.rank() != 1) return InvalidArgument("indices should be a vector.");
  if (ids.rank() != 1) return InvalidArgument("segment_ids should be a vector.");
  if (ids.num_elements() != indices.num_elements()) {
    return InvalidArgument("segment_ids and indices should have same size.");
  }
  std::vector<int64_t> counts(static_cast<size_t>(grad.dim(0)), 0);
  for (int64_t i = 0; i < ids.num_elements(); ++i) {
    const int64_t id = IntAt(ids, i);
    if (id < 0 || id >= grad.dim(0)) {
      const int64_t last = IntAt(ids, ids.num_elements() - 1);
      return InvalidArgument(last >= grad.dim(0) ? "Invalid number of segments: " : "", "Segment id ", id,
                             " out of range [0, ", grad.dim(0),
                             "), possibly because 'segment_ids' input is not sorted.");
    }
    ++counts[static_cast<size_t>(id)];
  }
  std::vector<double> factors(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) factors[i] = SegmentFactor(scale, std::max<int64_t>(counts[i], 1));
  return factors;
}

StatusOr<int64_t> RowsInput(const KernelContext& ctx, const Tensor& indices) {
  MR_ASSIGN_OR_RETURN(const int64_t rows, ScalarInput(ctx, 3, "output_dim0"));
  if (rows < 0) return InvalidArgument("Expected a non-negative size for the first dimension, not ", rows);
  for (int64_t i = 0; i < indices.num_elements(); ++i) {
    const int64_t row = IntAt(indices, i);
    if (row < 0 || row >= rows) return InvalidArgument("Index ", row, " out of range [0, ", rows, ").");
  }
  return rows;
}

// Adds each segment's row of the gradient, scaled, to row to_row(i) of the output for entry i.
template <typename T, typename ToRow>
Status AddBack(KernelContext& ctx, const Tensor& grad, const Tensor& ids, const std::vector<double>& factors,
               ToRow to_row, Tensor* output) {
  using C = ComputeType<T>;
  Tensor sums = *output;
  if constexpr (!std::is_same_v<C, T>) {
    MR_ASSIGN_OR_RETURN(sums, ctx.AllocateTemp(DTypeOf<C>(), output->shape()));
  }
  C* sum = sums.data<C>();
  std::fill_n(sum, sums.num_elements(), C(0));
  const int64_t width = sums.shape().Product(1, sums.rank());
  for (int64_t i = 0; i < ids.num_elements(); ++i) {
    const int64_t id = IntAt(ids, i);
    const C factor = static_cast<C>(factors[static_cast<size_t>(id)]);
    const T* from = grad.data<T>() + id * width;
    C* to = sum + to_row(i) * width;
    for (int64_t j = 0; j < width; ++j) to[j] += factor * static_cast<C>(from[j]);
  }
  if constexpr (!std::is_same_v<C, T>) Narrow(sum, output->data<T>(), sums.num_elements());
  return absl::OkStatus();
}

class GradKernel : public Kernel {
 public:
  explicit GradKernel(KernelInit& init) {
    if (!DispatchType(FloatTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

 protected:
  template <typename ToRow>
  static Status Emit(KernelContext& ctx, const std::vector<double>& factors, int64_t rows, ToRow to_row) {
    const Tensor& grad = ctx.input(0);
    Shape shape = grad.shape();
    shape.set_dim(0, rows);
    MR_RETURN_IF_ERROR(Shape::Make(shape.dims()).status());
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    Status status;
    DispatchType(FloatTypes{}, grad.dtype(), [&](auto tag) {
      status = AddBack<typename decltype(tag)::type>(ctx, grad, ctx.input(2), factors, to_row, output);
    });
    return status;
  }
};

template <SegmentScale kScale>
class SparseSegmentGradKernel : public GradKernel {
 public:
  using GradKernel::GradKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& indices = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const std::vector<double> factors, SegmentFactors(ctx.input(0), indices, ctx.input(2), kScale));
    MR_ASSIGN_OR_RETURN(const int64_t rows, RowsInput(ctx, indices));
    return Emit(ctx, factors, rows, [&](int64_t i) { return IntAt(indices, i); });
  }
};

template <SegmentScale kScale>
class SparseSegmentGradV2Kernel : public GradKernel {
 public:
  using GradKernel::GradKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& indices = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const std::vector<double> factors, SegmentFactors(ctx.input(0), indices, ctx.input(2), kScale));
    MR_RETURN_IF_ERROR(RowsInput(ctx, indices).status());
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < indices.num_elements(); ++i) rows.push_back(IntAt(indices, i));
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    const auto n = static_cast<int64_t>(rows.size());
    MR_ASSIGN_OR_RETURN(Tensor * named, ctx.AllocateOutput(1, Shape({n})));
    DispatchType(IndexTypes{}, named->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) named->data<T>()[i] = static_cast<T>(rows[static_cast<size_t>(i)]);
    });
    return Emit(ctx, factors, n, [&](int64_t i) {
      return std::lower_bound(rows.begin(), rows.end(), IntAt(indices, i)) - rows.begin();
    });
  }
};

Status AllRowsShape(ShapeContext& c) { return SparseSegmentRows(c, 3); }
Status OnlyRowsShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(3, 0).status());
  MR_RETURN_IF_ERROR(SparseSegmentRows(c, -1));
  c.set_output(1, PartialShape({PartialShape::kUnknown}));
  return absl::OkStatus();
}

// The gradient ops are linear in grad, so its gradient is the forward op.
Status BackThroughGrad(GradientContext& c, const char* op) {
  const Endpoint segments =
      c.Op("StridedSlice", {c.Shape(c.input(0)), c.Ints({0}), c.Ints({1}), c.Ints({1})}, {{"shrink_axis_mask", 1}});
  c.set_input_grad(0, c.Op(op, {c.grad(), c.input(1), c.input(2), segments}));
  return c.status();
}
Status SumGradGradient(GradientContext& c) { return BackThroughGrad(c, "SparseSegmentSumWithNumSegments"); }
Status MeanGradGradient(GradientContext& c) { return BackThroughGrad(c, "SparseSegmentMeanWithNumSegments"); }
Status SqrtNGradGradient(GradientContext& c) { return BackThroughGrad(c, "SparseSegmentSqrtNWithNumSegments"); }

}  // namespace

MILLRACE_OP(SparseSegmentSumGrad)
    .Input("grad: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("output_dim0: int32")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Shape(AllRowsShape)
    .Gradient(SumGradGradient)
    .Summary("The gradient of SparseSegmentSum");
MILLRACE_OP(SparseSegmentMeanGrad)
    .Input("grad: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("output_dim0: int32")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Shape(AllRowsShape)
    .Gradient(MeanGradGradient)
    .Summary("The gradient of SparseSegmentMean");
MILLRACE_OP(SparseSegmentSqrtNGrad)
    .Input("grad: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("output_dim0: int32")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Shape(AllRowsShape)
    .Gradient(SqrtNGradGradient)
    .Summary("The gradient of SparseSegmentSqrtN");

MILLRACE_OP(SparseSegmentSumGradV2)
    .Input("grad: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("dense_output_dim0: int32")
    .Output("output: T")
    .Output("sorted_unique_indices: Tidx")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Shape(OnlyRowsShape)
    .NotDifferentiable()
    .Summary("The selected rows of SparseSegmentSumGrad, and their indices");
MILLRACE_OP(SparseSegmentMeanGradV2)
    .Input("grad: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("dense_output_dim0: int32")
    .Output("output: T")
    .Output("sorted_unique_indices: Tidx")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Shape(OnlyRowsShape)
    .NotDifferentiable()
    .Summary("The selected rows of SparseSegmentMeanGrad, and their indices");
MILLRACE_OP(SparseSegmentSqrtNGradV2)
    .Input("grad: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("dense_output_dim0: int32")
    .Output("output: T")
    .Output("sorted_unique_indices: Tidx")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Shape(OnlyRowsShape)
    .NotDifferentiable()
    .Summary("The selected rows of SparseSegmentSqrtNGrad, and their indices");

MILLRACE_KERNEL(SparseSegmentSumGrad, kCpu, SparseSegmentGradKernel<SegmentScale::kSum>);
MILLRACE_KERNEL(SparseSegmentMeanGrad, kCpu, SparseSegmentGradKernel<SegmentScale::kMean>);
MILLRACE_KERNEL(SparseSegmentSqrtNGrad, kCpu, SparseSegmentGradKernel<SegmentScale::kSqrtN>);
MILLRACE_KERNEL(SparseSegmentSumGradV2, kCpu, SparseSegmentGradV2Kernel<SegmentScale::kSum>);
MILLRACE_KERNEL(SparseSegmentMeanGradV2, kCpu, SparseSegmentGradV2Kernel<SegmentScale::kMean>);
MILLRACE_KERNEL(SparseSegmentSqrtNGradV2, kCpu, SparseSegmentGradV2Kernel<SegmentScale::kSqrtN>);

}  // namespace millrace
