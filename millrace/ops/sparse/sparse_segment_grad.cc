// The gradient ops of SparseSegmentSum, SparseSegmentMean and SparseSegmentSqrtN: dense, or only the non-zero rows.
#include <algorithm>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/sparse/sparse_segment.h"

namespace millrace {
namespace {

// The scale factors of the segments; segment ids may be unsorted here.
StatusOr<std::vector<double>> SegmentFactors(const Tensor& grad, const Tensor& indices, const Tensor& ids,
                                             SegmentScale scale) {
  MR_RETURN_IF_ERROR(CheckSegmentShapes(grad, indices, ids, "grad"));
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

// Adds each segment's row of the gradient, scaled, to row rows[i] of the output for entry i.
template <typename T>
Status AddBack(KernelContext& ctx, const Tensor& grad, const Tensor& ids, const std::vector<double>& factors,
               const std::vector<int64_t>& rows, Tensor* output) {
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
    C* to = sum + rows[static_cast<size_t>(i)] * width;
    for (int64_t j = 0; j < width; ++j) to[j] += factor * static_cast<C>(from[j]);
  }
  if constexpr (!std::is_same_v<C, T>) Narrow(sum, output->data<T>(), sums.num_elements());
  return absl::OkStatus();
}

// Has one output, or two: then only the rows that are not zero, and their numbers.
class GradKernel : public Kernel {
 public:
  Status Compute(KernelContext& ctx) override {
    const Tensor &grad = ctx.input(0), &indices = ctx.input(1), &ids = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const std::vector<double> factors, SegmentFactors(grad, indices, ids, scale_));
    MR_ASSIGN_OR_RETURN(int64_t count, RowsInput(ctx, indices));
    std::vector<int64_t> rows(static_cast<size_t>(indices.num_elements()));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = IntAt(indices, static_cast<int64_t>(i));
    if (ctx.num_outputs() == 2) {
      MR_ASSIGN_OR_RETURN(count, NameRows(ctx, &rows));
    }
    Shape shape = grad.shape();
    shape.set_dim(0, count);
    MR_RETURN_IF_ERROR(Shape::Make(shape.dims()).status());
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    return add_back_(ctx, grad, ids, factors, rows, output);
  }

 protected:
  GradKernel(KernelInit& init, SegmentScale scale) : scale_(scale) {
    const bool known = DispatchType(FloatTypes{}, init.input_type(0),
                                    [&](auto tag) { add_back_ = &AddBack<typename decltype(tag)::type>; });
    if (!known) FailDType(init, init.input_type(0));
  }

 private:
  // Output 1 gets the distinct rows in order; `rows` then says for each entry which of them it is. Returns their
  // number.
  static StatusOr<int64_t> NameRows(KernelContext& ctx, std::vector<int64_t>* rows) {
    std::vector<int64_t> distinct = *rows;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    const auto count = static_cast<int64_t>(distinct.size());
    MR_ASSIGN_OR_RETURN(Tensor * names, ctx.AllocateOutput(1, Shape({count})));
    DispatchType(IndexTypes{}, names->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::transform(distinct.begin(), distinct.end(), names->data<T>(),
                     [](int64_t row) { return static_cast<T>(row); });
    });
    for (int64_t& row : *rows) row = std::lower_bound(distinct.begin(), distinct.end(), row) - distinct.begin();
    return count;
  }

  const SegmentScale scale_;
  decltype(&AddBack<float>) add_back_ = nullptr;
};

struct SegmentSumGradKernel : GradKernel {
  explicit SegmentSumGradKernel(KernelInit& init) : GradKernel(init, SegmentScale::kSum) {}
};
struct SegmentMeanGradKernel : GradKernel {
  explicit SegmentMeanGradKernel(KernelInit& init) : GradKernel(init, SegmentScale::kMean) {}
};
struct SegmentSqrtNGradKernel : GradKernel {
  explicit SegmentSqrtNGradKernel(KernelInit& init) : GradKernel(init, SegmentScale::kSqrtN) {}
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

MILLRACE_KERNEL(SparseSegmentSumGrad, kCpu, SegmentSumGradKernel);
MILLRACE_KERNEL(SparseSegmentMeanGrad, kCpu, SegmentMeanGradKernel);
MILLRACE_KERNEL(SparseSegmentSqrtNGrad, kCpu, SegmentSqrtNGradKernel);
MILLRACE_KERNEL(SparseSegmentSumGradV2, kCpu, SegmentSumGradKernel);
MILLRACE_KERNEL(SparseSegmentMeanGradV2, kCpu, SegmentMeanGradKernel);
MILLRACE_KERNEL(SparseSegmentSqrtNGradV2, kCpu, SegmentSqrtNGradKernel);

MILLRACE_HOST_MEMORY(SparseSegmentSumGrad, "GPU", "output_dim0");
MILLRACE_HOST_MEMORY(SparseSegmentMeanGrad, "GPU", "output_dim0");
MILLRACE_HOST_MEMORY(SparseSegmentSqrtNGrad, "GPU", "output_dim0");

}  // namespace millrace
