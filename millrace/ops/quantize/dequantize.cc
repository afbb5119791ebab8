// Dequantize: the inverse of QuantizeV2.
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/ops/quantize/ranges.h"
#include "millrace/ops/quantize/steps.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

enum class DequantizeMode { kMinCombined, kMinFirst, kScaled };

template <typename T, typename Out>
void MinCombined(const T* x, int64_t n, float low, float high, Out* y) {
  constexpr double kSpan = static_cast<double>(std::numeric_limits<T>::max()) - std::numeric_limits<T>::min();
  constexpr float kHalfRange = std::is_signed_v<T> ? static_cast<float>((kSpan + 1) / 2) : 0.0f;
  const float scale = static_cast<float>((high - low) / kSpan);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>((static_cast<float>(x[i]) + kHalfRange) * scale + low);
}

template <typename T, typename Out>
void MinFirst(const T* x, int64_t n, float low, float high, Out* y) {
  const QuantizedSteps<T> steps(low, high);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(steps.Value(x[i]));
}

template <typename T, typename Out>
void Scaled(const T* x, int64_t n, float low, float high, bool narrow, Out* y) {
  const float least = static_cast<float>(static_cast<int64_t>(std::numeric_limits<T>::min()) + (narrow ? 1 : 0));
  const float most = static_cast<float>(std::numeric_limits<T>::max());
  const float scale = std::is_signed_v<T> ? std::max(low / least, high / most) : high / most;
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>(static_cast<float>(x[i]) * scale);
}

class DequantizeKernel : public Kernel {
 public:
  explicit DequantizeKernel(KernelInit& init) {
    std::string mode;
    init.Attr("mode", &mode);
    init.Attr("narrow_range", &narrow_range_);
    init.Attr("axis", &axis_);
    if (!init.status().ok()) return;
    mode_ = mode == "SCALED"      ? DequantizeMode::kScaled
            : mode == "MIN_FIRST" ? DequantizeMode::kMinFirst
                                  : DequantizeMode::kMinCombined;
    if (axis_ < -1) init.Fail(InvalidArgument("Axis must be at least -1. Found ", axis_));
    // TensorFlow's bfloat16 kernels support two modes, the second only for bytes.
    const bool bytes = SizeOf(init.input_type(0)) == 1;
    if (init.output_type(0) == DType::kBFloat16 && mode_ != DequantizeMode::kMinCombined &&
        !(mode_ == DequantizeMode::kScaled && bytes)) {
      init.Fail(InvalidArgument("When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '", mode, "'"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (axis_ >= x.rank()) {
      return InvalidArgument("Axis must be less than input dimension(", x.rank(), "). Found ", axis_);
    }
    const RangeSlices slices = RangeSlices::Of(x.shape(), axis_);
    for (int i = 1; i <= 2; ++i) {
      if (ctx.input(i).num_elements() == slices.count) continue;
      return InvalidArgument(i == 1 ? "min_range" : "max_range",
                             " must have as many elements as input on the dequantization axis (", axis_, "), got ",
                             ctx.input(i).num_elements(), ", expected ", slices.count);
    }
    if (mode_ == DequantizeMode::kMinFirst && axis_ != -1) {
      return Unimplemented("MIN_FIRST mode is not implemented for Dequantize with axis != -1.");
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    const bool known = DispatchType(QuantizedTypes(), UnquantizedType(x.dtype()), [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchType(Types<float, bfloat16>(), y->dtype(), [&](auto out_tag) {
        using Out = typename decltype(out_tag)::type;
        Dequantize<T>(ctx, slices, y->data<Out>());
      });
    });
    return known ? absl::OkStatus() : InvalidArgument("Dequantize does not take ", x.dtype());
  }

 private:
  template <typename T, typename Out>
  void Dequantize(KernelContext& ctx, const RangeSlices& slices, Out* to) const {
    const T* from = ctx.input(0).raw<T>();
    const float* low = ctx.input(1).data<float>();
    const float* high = ctx.input(2).data<float>();
    slices.ForEach(ctx, [&](int64_t s, int64_t begin, int64_t n) {
      switch (mode_) {
        case DequantizeMode::kMinCombined:
          return MinCombined(from + begin, n, low[s], high[s], to + begin);
        case DequantizeMode::kMinFirst:
          return MinFirst(from + begin, n, low[s], high[s], to + begin);
        case DequantizeMode::kScaled:
          return Scaled(from + begin, n, low[s], high[s], narrow_range_, to + begin);
      }
    });
  }

  DequantizeMode mode_ = DequantizeMode::kMinCombined;
  bool narrow_range_ = false;
  int64_t axis_ = -1;
};

MILLRACE_OP(Dequantize)
    .Summary("Converts quantized numbers to floats.")
    .Input("input: T")
    .Input("min_range: float")
    .Input("max_range: float")
    .Output("output: dtype")
    .Attr("T: {qint8, quint8, qint32, qint16, quint16}")
    .Attr("mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'")
    .Attr("narrow_range: bool = false")
    .Attr("axis: int = -1")
    .Attr("dtype: {bfloat16, float} = DT_FLOAT")
    .Shape(QuantizeShape)
    .NotDifferentiable();
MILLRACE_KERNEL(Dequantize, kCpu, DequantizeKernel);

}  // namespace
}  // namespace millrace
