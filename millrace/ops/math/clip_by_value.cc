// ClipByValue.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/math/elementwise_shapes.h"

namespace millrace {
namespace {

template <typename T>
T Clipped(T x, T low, T high) {
  if constexpr (kIsComplex<T>) {
    const auto before = [](T a, T b) { return a.real() != b.real() ? a.real() < b.real() : a.imag() < b.imag(); };
    const T capped = before(high, x) ? high : x;
    return before(capped, low) ? low : capped;
  } else {
    return ClipFn()(x, low, high);
  }
}

template <typename T>
void ClipLoop(const T* x, const T* low, int64_t low_step, const T* high, int64_t high_step, T* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = Clipped<T>(x[i], low[i * low_step], high[i * high_step]);
}

class ClipByValueKernel : public Kernel {
 public:
  explicit ClipByValueKernel(KernelInit& init) {
    if (!DispatchType(NumberTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &x = ctx.input(0), &low = ctx.input(1), &high = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckBounds(x.shape(), low.shape(), high.shape()));
    Status status;
    DispatchType(NumberTypes{}, x.dtype(), [&](auto tag) { status = Clip<typename decltype(tag)::type>(ctx); });
    return status;
  }

 private:
  template <typename T>
  static Status Clip(KernelContext& ctx) {
    const Tensor &x = ctx.input(0), &low = ctx.input(1), &high = ctx.input(2);
    const T *px = x.data<T>(), *pl = low.data<T>(), *ph = high.data<T>();
    const int64_t low_step = low.rank() == 0 ? 0 : 1, high_step = high.rank() == 0 ? 0 : 1;
    const int64_t total = x.num_elements();
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0}, 0, x.shape()));
    T* out = y->data<T>();
    const T l0 = total > 0 ? *pl : T(), h0 = total > 0 ? *ph : T();
    ctx.ParallelFor(total, kCheapGrain, [&](int64_t begin, int64_t end) {
      if (low_step == 0 && high_step == 0) {
        ClipLoop(px + begin, &l0, 0, &h0, 0, out + begin, end - begin);
      } else {
        ClipLoop(px + begin, pl + begin * low_step, low_step, ph + begin * high_step, high_step, out + begin,
                 end - begin);
      }
    });
    return absl::OkStatus();
  }
};

Status ClipByValueGradient(GradientContext& c) {
  const Endpoint x = c.input(0), low = c.input(1), high = c.input(2), g = c.grad();
  const Endpoint below = c.Op("Less", {x, low}), above = c.Op("Greater", {x, high});
  const Endpoint zero = c.ScalarLike(0, g.dtype());
  c.set_input_grad(0, c.Op("SelectV2", {c.Op("LogicalOr", {below, above}), zero, g}));
  c.SetBroadcastGrads(1, c.Op("SelectV2", {below, g, zero}), 2, c.Op("SelectV2", {above, g, zero}));
  return c.status();
}

}  // namespace

Status CheckBounds(const Shape& x, const Shape& low, const Shape& high) {
  const auto fits = [&](const Shape& bound) { return bound.rank() == 0 || bound == x; };
  if (fits(low) && fits(high)) return absl::OkStatus();
  return InvalidArgument(
      "clip_value_min and clip_value_max must be either of the same shape as input, or a "
      "scalar. input shape: ",
      x.ToString(), " clip_value_min shape: ", low.ToString(), " clip_value_max shape: ", high.ToString());
}

MILLRACE_OP(ClipByValue)
    .Input("t: T")
    .Input("clip_value_min: T")
    .Input("clip_value_max: T")
    .Output("output: T")
    .Attr("T: numbertype")
    .Shape(UnchangedShape)
    .Gradient(ClipByValueGradient)
    .Summary("Clips t to [clip_value_min, clip_value_max]");

MILLRACE_KERNEL(ClipByValue, kCpu, ClipByValueKernel);
MILLRACE_HOST_KERNEL(ClipByValue, kCuda, "T", DType::kInt32);

}  // namespace millrace
