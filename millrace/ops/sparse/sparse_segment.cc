// SparseSegmentSum, SparseSegmentMean, SparseSegmentSqrtN, and the same with a given number of segments.
#include "millrace/ops/sparse/sparse_segment.h"

#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/math/segment.h"

namespace millrace {
namespace {

template <typename Index>
Status CheckIndices(const Index* indices, int64_t n, int64_t rows) {
  bool bad = false;
  for (int64_t i = 0; i < n; ++i) bad |= indices[i] < 0 || indices[i] >= rows;
  if (!bad) return absl::OkStatus();
  int64_t i = 0;
  while (indices[i] >= 0 && indices[i] < rows) ++i;
  return InvalidArgument("indices[", i, "] == ", indices[i], " out of range [0, ", rows, ")");
}

// Sums and scales rows indices[0, n) of x to one row.
template <typename T, typename Index>
void SumRows(const T* x, const Index* indices, int64_t n, double factor, int64_t width, T* out) {
  using C = ComputeType<T>;
  const auto scaled = [factor](C sum) {
    return factor == 1.0 ? static_cast<T>(sum) : static_cast<T>(sum * static_cast<C>(factor));
  };
  if (width == 1) {
    C sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<C>(x[indices[i]]);
    *out = scaled(sum);
    return;
  }
  C sum[kBlock];
  for (int64_t column = 0; column < width; column += kBlock) {
    const int64_t m = std::min(kBlock, width - column);
    std::fill_n(sum, m, C(0));
    for (int64_t i = 0; i < n; ++i) {
      const T* row = x + indices[i] * width + column;
      for (int64_t j = 0; j < m; ++j) sum[j] += static_cast<C>(row[j]);
    }
    for (int64_t j = 0; j < m; ++j) out[column + j] = scaled(sum[j]);
  }
}

// Entries [first, last) belong to segment `id`.
struct Segment {
  int64_t id, first, last;
};

StatusOr<std::vector<Segment>> Segments(const Tensor& ids) {
  std::vector<Segment> segments;
  Status status;
  DispatchType(IndexTypes{}, ids.dtype(), [&](auto tag) {
    const auto* id = ids.data<typename decltype(tag)::type>();
    const int64_t n = ids.num_elements();
    status = CheckSortedIds(id, n);
    if (!status.ok()) return;
    for (int64_t first = 0, last; first < n; first = last) {
      for (last = first + 1; last < n && id[last] == id[first];) ++last;
      segments.push_back({int64_t{id[first]}, first, last});
    }
  });
  MR_RETURN_IF_ERROR(status);
  return segments;
}

template <typename T, typename Index>
void SumSegments(const Tensor& data, const Tensor& indices, const std::vector<Segment>& segments, SegmentScale scale,
                 Tensor* output) {
  const int64_t width = output->shape().Product(1, output->rank());
  T* out = output->data<T>();
  std::fill_n(out, output->num_elements(), T(0));
  for (const Segment& segment : segments) {
    const int64_t n = segment.last - segment.first;
    SumRows(data.data<T>(), indices.data<Index>() + segment.first, n, SegmentFactor(scale, n), width,
            out + segment.id * width);
  }
}

class SparseSegmentKernel : public Kernel {
 public:
  Status Compute(KernelContext& ctx) override {
    const Tensor &data = ctx.input(0), &indices = ctx.input(1), &ids = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckSegmentShapes(data, indices, ids, "data"));
    MR_ASSIGN_OR_RETURN(const std::vector<Segment> segments, Segments(ids));
    int64_t count = segments.empty() ? 0 : segments.back().id + 1;
    if (ctx.num_inputs() == 4) {
      MR_ASSIGN_OR_RETURN(count, GivenSegments(ctx, 3, count));
    }
    Shape shape = data.shape();
    shape.set_dim(0, count);
    if (const Status fits = Shape::Make(shape.dims()).status(); !fits.ok()) return WithPrefix(kSegmentsOverflow, fits);
    Status status;
    DispatchType(IndexTypes{}, indices.dtype(), [&](auto tag) {
      status = CheckIndices(indices.data<typename decltype(tag)::type>(), indices.num_elements(), data.dim(0));
    });
    MR_RETURN_IF_ERROR(status);
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    sum_(data, indices, segments, scale_, output);
    return absl::OkStatus();
  }

 protected:
  template <typename InTypes>
  SparseSegmentKernel(KernelInit& init, SegmentScale scale, InTypes types) : scale_(scale) {
    const bool known = DispatchType(types, init.input_type(0), [&](auto tag) {
      using T = typename decltype(tag)::type;
      sum_ = init.input_type(1) == DType::kInt32 ? &SumSegments<T, int32_t> : &SumSegments<T, int64_t>;
    });
    if (!known) FailDType(init, init.input_type(0));
  }

 private:
  const SegmentScale scale_;
  decltype(&SumSegments<float, int32_t>) sum_ = nullptr;
};

struct SegmentSumKernel : SparseSegmentKernel {
  explicit SegmentSumKernel(KernelInit& init) : SparseSegmentKernel(init, SegmentScale::kSum, RealTypes{}) {}
};
struct SegmentMeanKernel : SparseSegmentKernel {
  explicit SegmentMeanKernel(KernelInit& init) : SparseSegmentKernel(init, SegmentScale::kMean, FloatTypes{}) {}
};
struct SegmentSqrtNKernel : SparseSegmentKernel {
  explicit SegmentSqrtNKernel(KernelInit& init) : SparseSegmentKernel(init, SegmentScale::kSqrtN, FloatTypes{}) {}
};

Status SparseSegmentShape(ShapeContext& c) { return SparseSegmentRows(c, -1); }
Status WithCountShape(ShapeContext& c) { return SparseSegmentRows(c, 3); }

Status GradientWith(GradientContext& c, const char* op) {
  const Endpoint rows =
      c.Op("StridedSlice", {c.Shape(c.input(0)), c.Ints({0}), c.Ints({1}), c.Ints({1})}, {{"shrink_axis_mask", 1}});
  c.set_input_grad(0, c.Op(op, {c.grad(), c.input(1), c.input(2), rows}));
  return c.status();
}
// The gradient op does not support integers.
Status SumGradient(GradientContext& c) {
  if (IsFloating(c.input(0).dtype())) return GradientWith(c, "SparseSegmentSumGrad");
  const Endpoint rows =
      c.Op("StridedSlice", {c.Shape(c.input(0)), c.Ints({0}), c.Ints({1}), c.Ints({1})}, {{"shrink_axis_mask", 1}});
  const Endpoint gathered = c.Op("GatherV2", {c.grad(), c.input(2), c.Scalar<int32_t>(0)});
  c.set_input_grad(0, c.Op("UnsortedSegmentSum", {gathered, c.input(1), rows}));
  return c.status();
}
Status MeanGradient(GradientContext& c) { return GradientWith(c, "SparseSegmentMeanGrad"); }
Status SqrtNGradient(GradientContext& c) { return GradientWith(c, "SparseSegmentSqrtNGrad"); }

}  // namespace

MILLRACE_OP(SparseSegmentSum)
    .Input("data: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Output("output: T")
    .Attr("T: realnumbertype")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Attr("sparse_gradient: bool = false")
    .Shape(SparseSegmentShape)
    .Gradient(SumGradient)
    .Summary("Sums of the selected rows, by sorted segment ids");
MILLRACE_OP(SparseSegmentMean)
    .Input("data: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Attr("sparse_gradient: bool = false")
    .Shape(SparseSegmentShape)
    .Gradient(MeanGradient)
    .Summary("Means of the selected rows, by sorted segment ids");
MILLRACE_OP(SparseSegmentSqrtN)
    .Input("data: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Attr("sparse_gradient: bool = false")
    .Shape(SparseSegmentShape)
    .Gradient(SqrtNGradient)
    .Summary("Sums of the selected rows divided by the square roots of their counts, by sorted segment ids");
MILLRACE_OP(SparseSegmentSumWithNumSegments)
    .Input("data: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("num_segments: Tnumsegments")
    .Output("output: T")
    .Attr("T: realnumbertype")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Attr("sparse_gradient: bool = false")
    .Shape(WithCountShape)
    .Gradient(SumGradient)
    .Summary("SparseSegmentSum with a given number of segments");
MILLRACE_OP(SparseSegmentMeanWithNumSegments)
    .Input("data: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("num_segments: Tnumsegments")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Attr("sparse_gradient: bool = false")
    .Shape(WithCountShape)
    .Gradient(MeanGradient)
    .Summary("SparseSegmentMean with a given number of segments");
MILLRACE_OP(SparseSegmentSqrtNWithNumSegments)
    .Input("data: T")
    .Input("indices: Tidx")
    .Input("segment_ids: Tsegmentids")
    .Input("num_segments: Tnumsegments")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Attr("Tsegmentids: {int32, int64} = int32")
    .Attr("sparse_gradient: bool = false")
    .Shape(WithCountShape)
    .Gradient(SqrtNGradient)
    .Summary("SparseSegmentSqrtN with a given number of segments");
MILLRACE_KERNEL(SparseSegmentSum, kCpu, SegmentSumKernel);
MILLRACE_KERNEL(SparseSegmentMean, kCpu, SegmentMeanKernel);
MILLRACE_KERNEL(SparseSegmentSqrtN, kCpu, SegmentSqrtNKernel);
MILLRACE_KERNEL(SparseSegmentSumWithNumSegments, kCpu, SegmentSumKernel);
MILLRACE_KERNEL(SparseSegmentMeanWithNumSegments, kCpu, SegmentMeanKernel);
MILLRACE_KERNEL(SparseSegmentSqrtNWithNumSegments, kCpu, SegmentSqrtNKernel);

MILLRACE_HOST_MEMORY(SparseSegmentSumWithNumSegments, "GPU", "num_segments");
MILLRACE_HOST_MEMORY(SparseSegmentMeanWithNumSegments, "GPU", "num_segments");
MILLRACE_HOST_MEMORY(SparseSegmentSqrtNWithNumSegments, "GPU", "num_segments");

}  // namespace millrace
