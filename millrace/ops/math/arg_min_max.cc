// ArgMax, ArgMin.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/math/line_dims.h"

namespace millrace {
namespace {

// The index of the extreme among x[0], x[stride] and so on; the first in case of a tie. NaN is ignored.
template <typename Before, typename T>
int64_t BestOf(const T* x, int64_t n, int64_t stride) {
  using C = ComputeType<T>;
  int64_t best = 0;
  C value = static_cast<C>(x[0]);
  for (int64_t i = 1; i < n; ++i) {
    const C candidate = static_cast<C>(x[i * stride]);
    if (Before()(candidate, value)) {
      best = i;
      value = candidate;
    }
  }
  return best;
}

// The same for contiguous floats: finds the extreme in parallel lanes first, then its position.
template <typename Before>
int64_t BestOfRow(const float* x, int64_t n) {
  constexpr int kLanes = 32;
  float lanes[kLanes];
  std::copy_n(x, kLanes, lanes);
  // NaN never wins; one in a lane's first element is replaced by any number.
  for (int64_t i = kLanes; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float c = x[i + j], v = lanes[j];
      lanes[j] = (Before()(c, v) | (v != v)) ? c : v;
    }
  }
  float best = lanes[0];
  const auto consider = [&](float c) { best = Before()(c, best) || best != best ? c : best; };
  for (int j = 1; j < kLanes; ++j) consider(lanes[j]);
  for (int64_t i = n / kLanes * kLanes; i < n; ++i) consider(x[i]);
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] == best) return i;
  }
  return 0;  // nothing but NaNs
}

using ArgTypes = JoinTypes<RealTypes, Types<bool>>::type;
using OutTypes = Types<int64_t, int32_t, int16_t, uint16_t>;

template <typename Before>
class ArgKernel : public Kernel {
 public:
  explicit ArgKernel(KernelInit& init) {
    DispatchType(ArgTypes{}, init.input_type(0), [&](auto tag) {
      using T = typename decltype(tag)::type;
      best_ = [](const void* x, int64_t at, int64_t n, int64_t stride) {
        if constexpr (std::is_same_v<T, float>) {
          if (stride == 1 && n >= 64) return BestOfRow<Before>(static_cast<const float*>(x) + at, n);
        }
        return BestOf<Before>(static_cast<const T*>(x) + at, n, stride);
      };
    });
    if (best_ == nullptr) FailDType(init, init.input_type(0));
    if (!DispatchType(OutTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    Shape shape;
    MR_ASSIGN_OR_RETURN(const LineDims d, LinesOfArg(ctx, &shape));
    const int64_t n = d.n, inner = d.inner;
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    DispatchType(OutTypes{}, output->dtype(), [&](auto tag) {
      using Out = typename decltype(tag)::type;
      Out* out = output->template data<Out>();
      const int64_t grain = std::max<int64_t>(1, kCheapGrain / n);
      ctx.ParallelFor(shape.num_elements(), grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          out[i] = static_cast<Out>(best_(x.raw_data(), i / inner * n * inner + i % inner, n, inner));
        }
      });
    });
    return absl::OkStatus();
  }

 private:
  int64_t (*best_)(const void* x, int64_t at, int64_t n, int64_t stride) = nullptr;
};

Status ArgShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  const PartialShape& input = c.input(0);
  if (!input.known_rank()) return absl::OkStatus();
  if (input.rank() == 0) return InvalidArgument("input must be at least of rank 1");
  const Tensor* dimension = c.constant(1);
  if (dimension == nullptr) {
    c.set_output(0, PartialShape::UnknownOfRank(input.rank() - 1));
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const int axis, CanonicalAxis(IntAt(*dimension, 0), input.rank()));
  PartialShape shape = PartialShape::Scalar();
  for (int d = 0; d < input.rank(); ++d) {
    if (d != axis) shape.AddDim(input.dim(d));
  }
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

StatusOr<LineDims> LinesOfArg(const KernelContext& ctx, Shape* shape) {
  const Shape& x = ctx.input(0).shape();
  MR_ASSIGN_OR_RETURN(const int64_t given, ScalarInput(ctx, 1, "dim"));
  if (given < -x.rank() || given >= x.rank()) {
    return InvalidArgument("Expected dimension in the range [", -x.rank(), ", ", x.rank(), "), but got ", given);
  }
  const int axis = static_cast<int>(given < 0 ? given + x.rank() : given);
  if (x.dim(axis) == 0) return InvalidArgument("Reduction axis ", given, " is empty in shape ", x.ToString());
  *shape = x;
  shape->RemoveDim(axis);
  return LineDims{x.Product(0, axis), x.dim(axis), x.Product(axis + 1, x.rank())};
}

MILLRACE_OP(ArgMax)
    .Input("input: T")
    .Input("dimension: Tidx")
    .Output("output: output_type")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64, qint8, quint8, qint32, qint16, quint16, bool}")
    .Attr("Tidx: {int16, int32, int64} = int32")
    .Attr("output_type: {int16, uint16, int32, int64} = int64")
    .Shape(ArgShape)
    .NotDifferentiable()
    .Summary("The index of the maximum along an axis; the first one in case of a tie");
MILLRACE_OP(ArgMin)
    .Input("input: T")
    .Input("dimension: Tidx")
    .Output("output: output_type")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64, qint8, quint8, qint32, qint16, quint16, bool}")
    .Attr("Tidx: {int32, int64} = int32")
    .Attr("output_type: {int32, int64} = int64")
    .Shape(ArgShape)
    .NotDifferentiable()
    .Summary("The index of the minimum along an axis; the first one in case of a tie");

MILLRACE_KERNEL(ArgMax, kCpu, ArgKernel<ArgMaxBeforeFn>);
MILLRACE_KERNEL(ArgMin, kCpu, ArgKernel<ArgMinBeforeFn>);
MILLRACE_HOST_MEMORY(ArgMax, "GPU", "dimension");
MILLRACE_HOST_MEMORY(ArgMin, "GPU", "dimension");

}  // namespace millrace
