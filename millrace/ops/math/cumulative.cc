// Cumsum, Cumprod, CumulativeLogsumexp.
#include <cmath>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/math/line_dims.h"

namespace millrace {
namespace {

template <typename T>
struct SumScan {
  static T Identity() { return T(0); }
  static T Combine(T a, T b) { return static_cast<T>(a + b); }
};
template <typename T>
struct ProdScan {
  static T Identity() { return T(1); }
  static T Combine(T a, T b) { return static_cast<T>(a * b); }
};
template <typename T>
struct LogsumexpScan {
  static T Identity() { return -std::numeric_limits<T>::infinity(); }
  static T Combine(T a, T b) {
    const T high = a > b ? a : b, low = a > b ? b : a;
    if (low == Identity() || high == std::numeric_limits<T>::infinity()) return high;
    return high + std::log1p(std::exp(low - high));
  }
};

// x[outer][n][inner] along n. One line at a time: the order of the sum is that of the line.
template <typename T, template <typename> class Scan>
void ScanLines(const T* x, T* y, int64_t n, int64_t inner, int64_t first, int64_t last, bool exclusive, bool reverse) {
  using C = ComputeType<T>;
  for (int64_t line = first; line < last; ++line) {
    const int64_t start = line / inner * n * inner + line % inner;
    const int64_t from = reverse ? start + (n - 1) * inner : start;
    const int64_t step = reverse ? -inner : inner;
    C sum = Scan<C>::Identity();
    for (int64_t i = 0, at = from; i < n; ++i, at += step) {
      const C next = Scan<C>::Combine(sum, static_cast<C>(x[at]));
      y[at] = static_cast<T>(exclusive ? sum : next);
      sum = next;
    }
  }
}

template <template <typename> class Scan, typename InTypes>
class ScanKernel : public Kernel {
 public:
  explicit ScanKernel(KernelInit& init) {
    init.Attr("exclusive", &exclusive_);
    init.Attr("reverse", &reverse_);
    if (!DispatchType(InTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const LineDims d, LinesOfScan(ctx));
    const int64_t outer = d.outer, n = d.n, inner = d.inner;
    const Shape shape = x.shape();
    const void* in = x.raw_data();
    const DType dtype = x.dtype();
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    DispatchType(InTypes{}, dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = y->template data<T>();
      const int64_t grain = std::max<int64_t>(1, kCheapGrain / n);
      ctx.ParallelFor(outer * inner, grain, [&](int64_t first, int64_t last) {
        ScanLines<T, Scan>(static_cast<const T*>(in), out, n, inner, first, last, exclusive_, reverse_);
      });
    });
    return absl::OkStatus();
  }

 private:
  bool exclusive_ = false;
  bool reverse_ = false;
};

Status ScanShape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  const Tensor* axis = c.constant(1);
  if (x.known_rank() && axis != nullptr && axis->num_elements() == 1) {
    MR_RETURN_IF_ERROR(CanonicalAxis(IntAt(*axis, 0), x.rank()).status());
  }
  c.set_output(0, x);
  return absl::OkStatus();
}

AttrList ScanAttrs(GradientContext& c, bool turn) {
  return {{"exclusive", c.AttrOr<bool>("exclusive", false)}, {"reverse", c.AttrOr<bool>("reverse", false) != turn}};
}

Status CumsumGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("Cumsum", {c.grad(), c.input(1)}, ScanAttrs(c, true)));
  return c.status();
}
Status CumprodGradient(GradientContext& c) {
  const Endpoint x = c.input(0), axis = c.input(1);
  const Endpoint product = c.Op("Cumprod", {x, axis}, ScanAttrs(c, false));
  const Endpoint sum = c.Op("Cumsum", {c.Mul(c.Conj(product), c.grad()), axis}, ScanAttrs(c, true));
  c.set_input_grad(0, c.Div(sum, c.Conj(x)));
  return c.status();
}

// In log space, separately for the positive and the negative part of the gradient.
Status CumulativeLogsumexpGradient(GradientContext& c) {
  const Endpoint x = c.input(0), axis = c.input(1), g = c.grad();
  const DType t = x.dtype();
  const Endpoint zero = c.ScalarLike(0, t);
  const double least = t == DType::kDouble ? std::numeric_limits<double>::lowest()
                       : t == DType::kHalf ? -65504.0
                                           : static_cast<double>(std::numeric_limits<float>::lowest());
  const Endpoint lowest = c.ScalarLike(t == DType::kBFloat16 ? -3.38e38 : least, t);
  const auto part = [&](const char* compare, Endpoint magnitude) {
    const Endpoint mask = c.Op(compare, {g, zero});
    const Endpoint log_g = c.Op("SelectV2", {mask, c.Op("Log", {magnitude}), lowest});
    const Endpoint scanned = c.Op("CumulativeLogsumexp", {c.Sub(log_g, c.output(0)), axis}, ScanAttrs(c, true));
    return c.Op("Exp", {c.Add(scanned, x)});
  };
  c.set_input_grad(0, c.Sub(part("Greater", g), part("Less", c.Neg(g))));
  return c.status();
}

}  // namespace

StatusOr<LineDims> LinesOfScan(const KernelContext& ctx) {
  const Shape& x = ctx.input(0).shape();
  const Tensor& axis = ctx.input(1);
  if (axis.num_elements() != 1) {
    return InvalidArgument("ScanOp: axis must be a scalar, not ", axis.shape().ToString());
  }
  const int64_t given = IntAt(axis, 0);
  if (given < -x.rank() || given >= x.rank()) {
    return InvalidArgument("ScanOp: Expected scan axis in the range [", -x.rank(), ", ", x.rank(), "), but got ",
                           given);
  }
  const int at = static_cast<int>(given < 0 ? given + x.rank() : given);
  return LineDims{x.Product(0, at), x.dim(at), x.Product(at + 1, x.rank())};
}

MILLRACE_OP(Cumsum)
    .Input("x: T")
    .Input("axis: Tidx")
    .Output("out: T")
    .Attr("exclusive: bool = false")
    .Attr("reverse: bool = false")
    .Attr("T: numbertype")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ScanShape)
    .Gradient(CumsumGradient)
    .Summary("Running sums along an axis");
MILLRACE_OP(Cumprod)
    .Input("x: T")
    .Input("axis: Tidx")
    .Output("out: T")
    .Attr("exclusive: bool = false")
    .Attr("reverse: bool = false")
    .Attr("T: numbertype")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ScanShape)
    .Gradient(CumprodGradient)
    .Summary("Running products along an axis");
MILLRACE_OP(CumulativeLogsumexp)
    .Input("x: T")
    .Input("axis: Tidx")
    .Output("out: T")
    .Attr("exclusive: bool = false")
    .Attr("reverse: bool = false")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(ScanShape)
    .Gradient(CumulativeLogsumexpGradient)
    .Summary("Running log(sum(exp(x))) along an axis");

MILLRACE_KERNEL(Cumsum, kCpu, ScanKernel<SumScan, NumberTypes>);
MILLRACE_KERNEL(Cumprod, kCpu, ScanKernel<ProdScan, NumberTypes>);
MILLRACE_HOST_MEMORY(Cumsum, "GPU", "axis");
MILLRACE_HOST_MEMORY(Cumprod, "GPU", "axis");
MILLRACE_KERNEL(CumulativeLogsumexp, kCpu, ScanKernel<LogsumexpScan, FloatTypes>);

}  // namespace millrace
