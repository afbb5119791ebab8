// UnsortedSegmentSum, UnsortedSegmentProd, UnsortedSegmentMax, UnsortedSegmentMin.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/math/segment.h"

namespace millrace {
namespace {

// "[1,2]" for a position in row-major order.
std::string IndexText(const Shape& shape, int64_t position) {
  std::string text;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    text = absl::StrCat(position % shape.dim(d), text.empty() ? "" : ",", text);
    position /= shape.dim(d);
  }
  return absl::StrCat("[", text, "]");
}

bool IsPrefix(const Shape& prefix, const Shape& shape) {
  if (prefix.rank() > shape.rank()) return false;
  for (int d = 0; d < prefix.rank(); ++d) {
    if (prefix.dim(d) != shape.dim(d)) return false;
  }
  return true;
}

template <template <typename> class Op, typename InTypes>
class UnsortedSegmentKernel : public Kernel {
 public:
  explicit UnsortedSegmentKernel(KernelInit& init) {
    if (!DispatchType(InTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &data = ctx.input(0), &ids = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeOfSegments(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    const int64_t width = shape.Product(1, shape.rank());
    Status status;
    DispatchType(InTypes{}, data.dtype(), [&](auto tag) {
      status = Combine<typename decltype(tag)::type>(ctx, data, ids, shape.dim(0), width, output);
    });
    return status;
  }

 private:
  template <typename T>
  static Status Combine(KernelContext& ctx, const Tensor& data, const Tensor& ids, int64_t segments, int64_t width,
                        Tensor* output) {
    using C = ComputeType<T>;
    // 16-bit floats are summed as floats.
    Tensor sums = *output;
    if constexpr (!std::is_same_v<C, T>) {
      MR_ASSIGN_OR_RETURN(sums, ctx.AllocateTemp(DTypeOf<C>(), output->shape()));
    }
    C* sum = sums.data<C>();
    std::fill_n(sum, segments * width, std::is_same_v<C, T> ? Op<C>::Identity() : static_cast<C>(Op<T>::Identity()));
    const T* x = data.data<T>();
    for (int64_t i = 0, n = ids.num_elements(); i < n; ++i) {
      const int64_t id = IntAt(ids, i);
      if (id < 0) continue;
      if (id >= segments) {
        return InvalidArgument("segment_ids", IndexText(ids.shape(), i), " = ", id, " is out of range [0, ", segments,
                               ")");
      }
      for (int64_t j = 0; j < width; ++j) {
        C& to = sum[id * width + j];
        to = Op<C>::Combine(to, static_cast<C>(x[i * width + j]));
      }
    }
    if constexpr (!std::is_same_v<C, T>) {
      std::transform(sum, sum + segments * width, output->data<T>(), [](C v) { return static_cast<T>(v); });
    }
    return absl::OkStatus();
  }
};

Status UnsortedSegmentShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  const PartialShape &data = c.input(0), &ids = c.input(1);
  if (!data.known_rank() || !ids.known_rank()) return absl::OkStatus();
  if (ids.rank() > data.rank()) {
    return InvalidArgument("data.shape = ", data.ToString(),
                           " does not start with segment_ids.shape = ", ids.ToString());
  }
  const Tensor* segments = c.constant(2);
  PartialShape shape({segments == nullptr ? PartialShape::kUnknown : IntAt(*segments, 0)});
  if (segments != nullptr && shape.dim(0) < 0) {
    return InvalidArgument("Input num_segments == ", shape.dim(0), " must not be negative.");
  }
  for (int d = 0; d < ids.rank(); ++d) {
    if (data.dim(d) >= 0 && ids.dim(d) >= 0 && data.dim(d) != ids.dim(d)) {
      return InvalidArgument("data.shape = ", data.ToString(),
                             " does not start with segment_ids.shape = ", ids.ToString());
    }
  }
  for (int d = ids.rank(); d < data.rank(); ++d) shape.AddDim(data.dim(d));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

// Rows gathered by the ids of input 1, with `dropped` for negative ids.
struct Gathered {
  Endpoint rows;
  Endpoint is_kept;  // broadcasts against the rows
};
Gathered GatherKept(GradientContext& c, Endpoint params) {
  const Endpoint ids = c.input(1);
  const Endpoint zero = c.ScalarLike(0, ids.dtype());
  const Endpoint safe = c.Op("Maximum", {ids, zero});
  const Endpoint rows = c.Op("GatherV2", {params, safe, c.Scalar<int32_t>(0)});
  const Endpoint kept = c.Op("GreaterEqual", {ids, zero});
  // Adds a dimension of size 1 for each dimension of data that the ids lack.
  const Endpoint missing = c.Reshape(c.Sub(c.Rank(rows), c.Rank(ids)), c.Ints({1}));
  const Endpoint tail = c.Op("Fill", {missing, c.Scalar<int32_t>(1)});
  const Endpoint shape = c.Op("ConcatV2", {c.Shape(ids), tail, c.Scalar<int32_t>(0)});
  return {rows, c.Reshape(kept, shape)};
}
Endpoint GatherOrZero(GradientContext& c, Endpoint params) {
  const Gathered g = GatherKept(c, params);
  return c.Op("SelectV2", {g.is_kept, g.rows, c.ScalarLike(0, params.dtype())});
}

Status UnsortedSegmentSumGradient(GradientContext& c) {
  c.set_input_grad(0, GatherOrZero(c, c.grad()));
  return c.status();
}
Status UnsortedSegmentExtremeGradient(GradientContext& c) {
  const Endpoint data = c.input(0), ids = c.input(1), zero = c.ScalarLike(0, data.dtype());
  const Gathered best = GatherKept(c, c.output(0));
  const Endpoint is_best = c.Op("LogicalAnd", {c.Op("Equal", {data, best.rows}), best.is_kept});
  const Endpoint ties = c.Op("UnsortedSegmentSum", {c.Cast(is_best, data.dtype()), ids, c.input(2)});
  const Endpoint shared = GatherKept(c, c.Div(c.grad(), ties)).rows;
  c.set_input_grad(0, c.Op("SelectV2", {is_best, shared, zero}));
  return c.status();
}
// product / x, where x is 0 the product of the others if it is the only zero, else 0.
Status UnsortedSegmentProdGradient(GradientContext& c) {
  const Endpoint data = c.input(0), ids = c.input(1), segments = c.input(2);
  const Endpoint zero = c.ScalarLike(0, data.dtype()), one = c.ScalarLike(1, data.dtype());
  const Endpoint is_zero = c.Op("Equal", {data, zero});
  const Endpoint zeros = c.Op("UnsortedSegmentSum", {c.Cast(is_zero, DType::kInt32), ids, segments});
  const Endpoint several = c.Op("Greater", {zeros, c.Scalar<int32_t>(1)});
  const Endpoint grad = c.Op("SelectV2", {several, zero, c.grad()});
  const Endpoint no_zeros = c.Op("SelectV2", {is_zero, one, data});
  const Endpoint others = c.Op("UnsortedSegmentProd", {no_zeros, ids, segments});
  const Endpoint product_at = GatherKept(c, c.output(0)).rows, others_at = GatherKept(c, others).rows;
  const Endpoint slope = c.Op("SelectV2", {is_zero, others_at, c.Div(product_at, no_zeros)});
  c.set_input_grad(0, c.Mul(GatherOrZero(c, grad), slope));
  return c.status();
}

}  // namespace

StatusOr<Shape> ShapeOfSegments(const KernelContext& ctx) {
  const Shape &data = ctx.input(0).shape(), &ids = ctx.input(1).shape();
  if (ctx.input(2).rank() != 0) {
    return InvalidArgument("num_segments should be a scalar, not shape ", ctx.input(2).shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(const int64_t segments, ScalarInput(ctx, 2, "num_segments"));
  if (segments < 0) return InvalidArgument("Input num_segments == ", segments, " must not be negative.");
  if (!IsPrefix(ids, data)) {
    return InvalidArgument("data.shape = ", data.ToString(),
                           " does not start with segment_ids.shape = ", ids.ToString());
  }
  Shape::Dims dims = {segments};
  for (int d = ids.rank(); d < data.rank(); ++d) dims.push_back(data.dim(d));
  return Shape::Make(dims);
}

MILLRACE_OP(UnsortedSegmentSum)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Input("num_segments: Tnumsegments")
    .Output("output: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int16, int32, int64}")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Shape(UnsortedSegmentShape)
    .Gradient(UnsortedSegmentSumGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("The sums of the rows with the same id; negative ids are dropped");
MILLRACE_OP(UnsortedSegmentProd)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Input("num_segments: Tnumsegments")
    .Output("output: T")
    .Attr("T: numbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Shape(UnsortedSegmentShape)
    .Gradient(UnsortedSegmentProdGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("The products of the rows with the same id; negative ids are dropped");
MILLRACE_OP(UnsortedSegmentMax)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Input("num_segments: Tnumsegments")
    .Output("output: T")
    .Attr("T: realnumbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Shape(UnsortedSegmentShape)
    .Gradient(UnsortedSegmentExtremeGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("The maxima of the rows with the same id; negative ids are dropped");
MILLRACE_OP(UnsortedSegmentMin)
    .Input("data: T")
    .Input("segment_ids: Tindices")
    .Input("num_segments: Tnumsegments")
    .Output("output: T")
    .Attr("T: realnumbertype")
    .Attr("Tindices: {int32, int64}")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Shape(UnsortedSegmentShape)
    .Gradient(UnsortedSegmentExtremeGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("The minima of the rows with the same id; negative ids are dropped");

MILLRACE_KERNEL(UnsortedSegmentSum, kCpu, UnsortedSegmentKernel<SegmentAdd, NumberTypes>);
MILLRACE_HOST_MEMORY(UnsortedSegmentSum, "GPU", "num_segments");
MILLRACE_KERNEL(UnsortedSegmentProd, kCpu, UnsortedSegmentKernel<SegmentMultiply, NumberTypes>);
MILLRACE_HOST_MEMORY(UnsortedSegmentProd, "GPU", "num_segments");
MILLRACE_KERNEL(UnsortedSegmentMax, kCpu, UnsortedSegmentKernel<SegmentGreatest, RealTypes>);
MILLRACE_HOST_MEMORY(UnsortedSegmentMax, "GPU", "num_segments");
MILLRACE_KERNEL(UnsortedSegmentMin, kCpu, UnsortedSegmentKernel<SegmentLeast, RealTypes>);
MILLRACE_HOST_MEMORY(UnsortedSegmentMin, "GPU", "num_segments");

}  // namespace millrace
