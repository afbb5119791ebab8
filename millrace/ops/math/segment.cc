// SegmentSum, SegmentMean, SegmentProd, SegmentMax, SegmentMin: over sorted ids.
#include "millrace/ops/math/segment.h"

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {
namespace {

// Reduces rows [first, last) of data to one row.
template <typename T, template <typename> class Op>
void CombineRows(const T* data, int64_t first, int64_t last, int64_t width, T* out) {
  using C = ComputeType<T>;
  C sum[kBlock];
  for (int64_t column = 0; column < width; column += kBlock) {
    const int64_t n = std::min(kBlock, width - column);
    for (int64_t j = 0; j < n; ++j) sum[j] = static_cast<C>(data[first * width + column + j]);
    for (int64_t r = first + 1; r < last; ++r) {
      const T* row = data + r * width + column;
      for (int64_t j = 0; j < n; ++j) sum[j] = Op<C>::Combine(sum[j], static_cast<C>(row[j]));
    }
    for (int64_t j = 0; j < n; ++j) {
      if constexpr (Op<C>::kMean) sum[j] = static_cast<C>(sum[j] / static_cast<C>(last - first));
      out[column + j] = static_cast<T>(sum[j]);
    }
  }
}

// Reduces the rows of each id to the row of that index, and fills the gaps in between.
template <typename T, template <typename> class Op, typename Id>
void CombineSegments(const T* data, const Id* ids, int64_t rows, int64_t width, T* out) {
  using C = ComputeType<T>;
  const T gap = static_cast<T>(Op<C>::Gap());
  int64_t filled = 0;
  for (int64_t first = 0, last; first < rows; first = last) {
    const int64_t id = ids[first];
    last = first + 1;
    if (filled < id) std::fill(out + filled * width, out + id * width, gap);
    filled = id + 1;
    if (width == 1) {
      C one = static_cast<C>(data[first]);
      for (; last < rows && ids[last] == id; ++last) one = Op<C>::Combine(one, static_cast<C>(data[last]));
      if constexpr (Op<C>::kMean) one = static_cast<C>(one / static_cast<C>(last - first));
      out[id] = static_cast<T>(one);
    } else {
      while (last < rows && ids[last] == id) ++last;
      CombineRows<T, Op>(data, first, last, width, out + id * width);
    }
  }
}

template <template <typename> class Op, typename InTypes>
class SegmentKernel : public Kernel {
 public:
  explicit SegmentKernel(KernelInit& init) {
    if (!DispatchType(InTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &data = ctx.input(0), &ids = ctx.input(1);
    if (ids.rank() != 1) return InvalidArgument("segment_ids should be a vector.");
    if (data.rank() < 1) return InvalidArgument("data must have at least one dimension");
    if (ids.num_elements() != data.dim(0)) {
      return InvalidArgument("segment_ids should be the same size as dimension 0 of input: ", ids.num_elements(),
                             " vs. ", data.dim(0));
    }
    Status status;
    DispatchType(IndexTypes{}, ids.dtype(),
                 [&](auto tag) { status = Combine(ctx, data, ids.data<typename decltype(tag)::type>()); });
    return status;
  }

 private:
  template <typename Id>
  static Status Combine(KernelContext& ctx, const Tensor& data, const Id* ids) {
    const int64_t rows = data.dim(0);
    MR_RETURN_IF_ERROR(CheckSortedIds(ids, rows));
    Shape shape = data.shape();
    shape.set_dim(0, rows == 0 ? 0 : int64_t{ids[rows - 1]} + 1);
    MR_RETURN_IF_ERROR(Shape::Make(shape.dims()).status());
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    const int64_t width = shape.Product(1, shape.rank());
    DispatchType(InTypes{}, data.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      CombineSegments<T, Op>(data.data<T>(), ids, rows, width, output->data<T>());
    });
    return absl::OkStatus();
  }
};

Status SegmentShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape data, c.WithRankAtLeast(0, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape ids, c.WithRank(1, 1));
  if (!data.known_rank()) return absl::OkStatus();
  if (data.dim(0) >= 0 && ids.dim(0) >= 0 && data.dim(0) != ids.dim(0)) {
    return InvalidArgument("segment_ids should be the same size as dimension 0 of input: ", ids.dim(0), " vs. ",
                           data.dim(0));
  }
  data.set_dim(0, PartialShape::kUnknown);
  c.set_output(0, std::move(data));
  return absl::OkStatus();
}

Endpoint GatherRows(GradientContext& c, Endpoint rows) {
  return c.Op("GatherV2", {rows, c.input(1), c.Scalar<int32_t>(0)});
}

Status SegmentSumGradient(GradientContext& c) {
  c.set_input_grad(0, GatherRows(c, c.grad()));
  return c.status();
}
Status SegmentMeanGradient(GradientContext& c) {
  // One row length of ones for each row, added up: the sizes of the segments, shaped to divide by.
  const Endpoint data = c.input(0), ids = c.input(1);
  const Endpoint rank = c.Rank(data);
  const Endpoint tail = c.Op("Fill", {c.Reshape(c.Sub(rank, c.Scalar<int32_t>(1)), c.Ints({1})), c.Scalar<int32_t>(1)});
  const Endpoint shape = c.Op("ConcatV2", {c.Shape(ids), tail, c.Scalar<int32_t>(0)});
  const Endpoint ones = c.Op("Fill", {shape, c.ScalarLike(1, c.grad().dtype())});
  const Endpoint sizes = c.Op("SegmentSum", {ones, ids});
  c.set_input_grad(0, GatherRows(c, c.Div(c.grad(), sizes)));
  return c.status();
}
// The gradient is divided evenly among the rows that have the extreme.
Status SegmentExtremeGradient(GradientContext& c) {
  const Endpoint data = c.input(0), ids = c.input(1);
  const Endpoint is_extreme = c.Op("Equal", {data, GatherRows(c, c.output(0))});
  const Endpoint ties = c.Op("SegmentSum", {c.Cast(is_extreme, data.dtype()), ids});
  const Endpoint shared = GatherRows(c, c.Div(c.grad(), ties));
  c.set_input_grad(0, c.Op("SelectV2", {is_extreme, shared, c.ScalarLike(0, data.dtype())}));
  return c.status();
}

// product / x, where x is 0 the product of the others if it is the only zero, else 0.
Status SegmentProdGradient(GradientContext& c) {
  const Endpoint data = c.input(0), ids = c.input(1);
  const Endpoint zero = c.ScalarLike(0, data.dtype()), one = c.ScalarLike(1, data.dtype());
  const Endpoint is_zero = c.Op("Equal", {data, zero});
  const Endpoint zeros = c.Op("SegmentSum", {c.Cast(is_zero, DType::kInt32), ids});
  const Endpoint several = c.Op("Greater", {zeros, c.Scalar<int32_t>(1)});
  const Endpoint grad = c.Op("SelectV2", {several, zero, c.grad()});
  const Endpoint no_zeros = c.Op("SelectV2", {is_zero, one, data});
  const Endpoint others = GatherRows(c, c.Op("SegmentProd", {no_zeros, ids}));
  const Endpoint slope = c.Op("SelectV2", {is_zero, others, c.Div(GatherRows(c, c.output(0)), no_zeros)});
  c.set_input_grad(0, c.Mul(GatherRows(c, grad), slope));
  return c.status();
}

}  // namespace

MILLRACE_OP(SegmentSum)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Output("output: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Shape(SegmentShape)
    .Gradient(SegmentSumGradient)
    .Summary("The sums of the rows with the same id; ids are sorted");
MILLRACE_OP(SegmentMean)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Output("output: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Shape(SegmentShape)
    .Gradient(SegmentMeanGradient)
    .Summary("The means of the rows with the same id; ids are sorted");
MILLRACE_OP(SegmentProd)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Output("output: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Shape(SegmentShape)
    .Gradient(SegmentProdGradient)
    .Summary("The products of the rows with the same id; ids are sorted");
MILLRACE_OP(SegmentMax)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Output("output: T")
    .Attr("T: realnumbertype")
    .Attr("Tindices: {int32, int64}")
    .Shape(SegmentShape)
    .Gradient(SegmentExtremeGradient)
    .Summary("The maxima of the rows with the same id; ids are sorted");
MILLRACE_OP(SegmentMin)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Output("output: T")
    .Attr("T: realnumbertype")
    .Attr("Tindices: {int32, int64}")
    .Shape(SegmentShape)
    .Gradient(SegmentExtremeGradient)
    .Summary("The minima of the rows with the same id; ids are sorted");

MILLRACE_KERNEL(SegmentSum, kCpu, SegmentKernel<SegmentAdd, NumberTypes>);
MILLRACE_KERNEL(SegmentMean, kCpu, SegmentKernel<SegmentAverage, NumberTypes>);
MILLRACE_KERNEL(SegmentProd, kCpu, SegmentKernel<SegmentMultiply, NumberTypes>);
MILLRACE_KERNEL(SegmentMax, kCpu, SegmentKernel<SegmentGreatest, RealTypes>);
MILLRACE_KERNEL(SegmentMin, kCpu, SegmentKernel<SegmentLeast, RealTypes>);

}  // namespace millrace
