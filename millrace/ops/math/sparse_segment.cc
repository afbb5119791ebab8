// SparseSegmentSum, SparseSegmentMean, SparseSegmentSqrtN, and the same with a given number of segments.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/math/sparse_segment.h"

namespace millrace {
namespace {

// One id for each index, sorted and not negative.
Status CheckIds(const Tensor& indices, const Tensor& ids) {
  if (indices.rank() != 1) return InvalidArgument("indices should be a vector.");
  if (ids.rank() != 1) return InvalidArgument("segment_ids should be a vector.");
  if (ids.num_elements() != indices.num_elements()) {
    return InvalidArgument("segment_ids and indices should have same size.");
  }
  for (int64_t i = 0, previous = 0; i < ids.num_elements(); ++i) {
    const int64_t id = IntAt(ids, i);
    if (id < 0) return InvalidArgument("segment ids must be >= 0");
    if (id < previous) return InvalidArgument("segment ids are not increasing");
    previous = id;
  }
  return absl::OkStatus();
}

// Rows indices[first, last) of x, added up and scaled, to one row.
template <typename T>
void SumRows(const T* x, const Tensor& indices, int64_t first, int64_t last, double factor,
             int64_t width, T* out) {
  using C = ComputeType<T>;
  C sum[kBlock];
  for (int64_t column = 0; column < width; column += kBlock) {
    const int64_t n = std::min(kBlock, width - column);
    std::fill_n(sum, n, C(0));
    for (int64_t i = first; i < last; ++i) {
      const T* row = x + IntAt(indices, i) * width + column;
      for (int64_t j = 0; j < n; ++j) sum[j] += static_cast<C>(row[j]);
    }
    for (int64_t j = 0; j < n; ++j) {
      out[column + j] = factor == 1.0 ? static_cast<T>(sum[j])
                                      : static_cast<T>(sum[j] * static_cast<C>(factor));
    }
  }
}

template <typename T>
void SumSegments(const Tensor& data, const Tensor& indices, const Tensor& ids, SegmentScale scale,
                 Tensor* output) {
  const int64_t n = ids.num_elements(), width = output->shape().Product(1, output->rank());
  T* out = output->data<T>();
  std::fill_n(out, output->num_elements(), T(0));
  for (int64_t first = 0; first < n;) {
    const int64_t id = IntAt(ids, first);
    int64_t last = first;
    while (last < n && IntAt(ids, last) == id) ++last;
    SumRows(data.data<T>(), indices, first, last, SegmentFactor(scale, last - first), width,
            out + id * width);
    first = last;
  }
}

Status CheckIndices(const Tensor& indices, int64_t rows) {
  for (int64_t i = 0; i < indices.num_elements(); ++i) {
    const int64_t row = IntAt(indices, i);
    if (row < 0 || row >= rows) {
      return InvalidArgument("indices[", i, "] == ", row, " out of range [0, ", rows, ")");
    }
  }
  return absl::OkStatus();
}

template <SegmentScale kScale, bool kGivenSegments, typename InTypes>
class SparseSegmentKernel : public Kernel {
 public:
  explicit SparseSegmentKernel(KernelInit& init) {
    if (!DispatchType(InTypes{}, init.input_type(0), [](auto) {}))
      FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &data = ctx.input(0), &indices = ctx.input(1), &ids = ctx.input(2);
    if (data.rank() < 1) return InvalidArgument("data must have at least one dimension");
    MR_RETURN_IF_ERROR(CheckIds(indices, ids));
    const int64_t n = ids.num_elements();
    int64_t segments = n == 0 ? 0 : IntAt(ids, n - 1) + 1;
    if constexpr (kGivenSegments) {
      MR_ASSIGN_OR_RETURN(const int64_t given, ScalarInput(ctx, 3, "num_segments"));
      if (given < segments) return InvalidArgument("segment ids must be < num_segments");
      segments = given;
    }
    MR_RETURN_IF_ERROR(CheckIndices(indices, data.dim(0)));
    Shape shape = data.shape();
    shape.set_dim(0, segments);
    MR_RETURN_IF_ERROR(Shape::Make(shape.dims()).status());
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    DispatchType(InTypes{}, data.dtype(), [&](auto tag) {
      SumSegments<typename decltype(tag)::type>(data, indices, ids, kScale, output);
    });
    return absl::OkStatus();
  }
};

Status SparseSegmentShape(ShapeContext& c) { return SparseSegmentRows(c, -1); }
Status WithCountShape(ShapeContext& c) { return SparseSegmentRows(c, 3); }

Status GradientWith(GradientContext& c, const char* op) {
  const Endpoint rows =
      c.Op("StridedSlice", {c.Shape(c.input(0)), c.Ints({0}), c.Ints({1}), c.Ints({1})},
           {{"shrink_axis_mask", 1}});
  c.set_input_grad(0, c.Op(op, {c.grad(), c.input(1), c.input(2), rows}));
  return c.status();
}
// A sum of integers has a gradient too, in the sense of the graph, but no op for it.
Status SumGradient(GradientContext& c) {
  if (IsFloating(c.input(0).dtype())) return GradientWith(c, "SparseSegmentSumGrad");
  const Endpoint rows =
      c.Op("StridedSlice", {c.Shape(c.input(0)), c.Ints({0}), c.Ints({1}), c.Ints({1})},
           {{"shrink_axis_mask", 1}});
  const Endpoint gathered = c.Op("GatherV2", {c.grad(), c.input(2), c.Scalar<int32_t>(0)});
  c.set_input_grad(0, c.Op("UnsortedSegmentSum", {gathered, c.input(1), rows}));
  return c.status();
}
Status MeanGradient(GradientContext& c) { return GradientWith(c, "SparseSegmentMeanGrad"); }
Status SqrtNGradient(GradientContext& c) { return GradientWith(c, "SparseSegmentSqrtNGrad"); }

}  // namespace

MILLRACE_OP(SparseSegmentSum)
    .Input("data: T").Input("indices: Tidx").Input("segment_ids: Tsegmentids").Output("output: T")
    .Attr("T: realnumbertype").Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32").Attr("sparse_gradient: bool = false")
    .Shape(SparseSegmentShape)
    .Gradient(SumGradient)
    .Summary("Sums of the rows that the indices name, by sorted segment ids");
MILLRACE_OP(SparseSegmentMean)
    .Input("data: T").Input("indices: Tidx").Input("segment_ids: Tsegmentids").Output("output: T")
    .Attr("T: {bfloat16, half, float, double}").Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32").Attr("sparse_gradient: bool = false")
    .Shape(SparseSegmentShape)
    .Gradient(MeanGradient)
    .Summary("Means of the rows that the indices name, by sorted segment ids");
MILLRACE_OP(SparseSegmentSqrtN)
    .Input("data: T").Input("indices: Tidx").Input("segment_ids: Tsegmentids").Output("output: T")
    .Attr("T: {bfloat16, half, float, double}").Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32").Attr("sparse_gradient: bool = false")
    .Shape(SparseSegmentShape)
    .Gradient(SqrtNGradient)
    .Summary("Sums divided by the roots of their counts, by sorted segment ids");
MILLRACE_OP(SparseSegmentSumWithNumSegments)
    .Input("data: T").Input("indices: Tidx").Input("segment_ids: Tsegmentids")
    .Input("num_segments: Tnumsegments").Output("output: T").Attr("T: realnumbertype")
    .Attr("Tidx: {int32, int64} = int32").Attr("Tnumsegments: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32").Attr("sparse_gradient: bool = false")
    .Shape(WithCountShape)
    .Gradient(SumGradient)
    .Summary("SparseSegmentSum with a given number of segments");
MILLRACE_OP(SparseSegmentMeanWithNumSegments)
    .Input("data: T").Input("indices: Tidx").Input("segment_ids: Tsegmentids")
    .Input("num_segments: Tnumsegments").Output("output: T")
    .Attr("T: {bfloat16, half, float, double}").Attr("Tidx: {int32, int64} = int32")
    .Attr("Tnumsegments: {int32, int64} = int32").Attr("Tsegmentids: {int32, int64} = int32")
    .Attr("sparse_gradient: bool = false")
    .Shape(WithCountShape)
    .Gradient(MeanGradient)
    .Summary("SparseSegmentMean with a given number of segments");
MILLRACE_OP(SparseSegmentSqrtNWithNumSegments)
    .Input("data: T").Input("indices: Tidx").Input("segment_ids: Tsegmentids")
    .Input("num_segments: Tnumsegments").Output("output: T")
    .Attr("T: {bfloat16, half, float, double}").Attr("Tidx: {int32, int64} = int32")
    .Attr("Tnumsegments: {int32, int64} = int32").Attr("Tsegmentids: {int32, int64} = int32")
    .Attr("sparse_gradient: bool = false")
    .Shape(WithCountShape)
    .Gradient(SqrtNGradient)
    .Summary("SparseSegmentSqrtN with a given number of segments");
MILLRACE_KERNEL(SparseSegmentSum, kCpu, SparseSegmentKernel<SegmentScale::kSum, false, RealTypes>);
MILLRACE_KERNEL(SparseSegmentMean, kCpu, SparseSegmentKernel<SegmentScale::kMean, false, FloatTypes>);
MILLRACE_KERNEL(SparseSegmentSqrtN, kCpu, SparseSegmentKernel<SegmentScale::kSqrtN, false, FloatTypes>);
MILLRACE_KERNEL(SparseSegmentSumWithNumSegments, kCpu,
                SparseSegmentKernel<SegmentScale::kSum, true, RealTypes>);
MILLRACE_KERNEL(SparseSegmentMeanWithNumSegments, kCpu,
                SparseSegmentKernel<SegmentScale::kMean, true, FloatTypes>);
MILLRACE_KERNEL(SparseSegmentSqrtNWithNumSegments, kCpu,
                SparseSegmentKernel<SegmentScale::kSqrtN, true, FloatTypes>);

}  // namespace millrace
