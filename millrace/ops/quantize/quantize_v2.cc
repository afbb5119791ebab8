// QuantizeV2: quantizes floats to integers of few bits.
#include <cmath>
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/ops/quantize/ranges.h"
#include "millrace/ops/quantize/steps.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

enum class QuantizeMode { kMinCombined, kMinFirst, kScaled };

// `value` is already rounded. Outside the range of 32-bit integers it becomes the lowest one, as in TensorFlow.
template <typename T>
T ToQuantized(float value) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value)) return sizeof(T) == 4 ? T(0) : Limits::min();
  if constexpr (sizeof(T) == 4) {
    return value >= -2147483648.0f && value < 2147483648.0f ? static_cast<T>(value) : Limits::min();
  } else {
    return static_cast<T>(
        std::min(std::max(value, static_cast<float>(Limits::min())), static_cast<float>(Limits::max())));
  }
}

// NaN stays NaN.
inline float Clamp(float x, float low, float high) {
  x = x > high ? high : x;
  return x < low ? low : x;
}

template <typename T>
void MinCombined(const float* x, int64_t n, float low, float high, T* y) {
  constexpr double kSpan = static_cast<double>(std::numeric_limits<T>::max()) - std::numeric_limits<T>::min();
  const float scale = static_cast<float>(kSpan / (high - low));
  constexpr float kHalfRange = std::is_signed_v<T> ? static_cast<float>((kSpan + 1) / 2) : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float steps = (Clamp(x[i], low, high) - low) * scale;
    y[i] = ToQuantized<T>(std::is_signed_v<T> ? std::round(steps - kHalfRange) : std::trunc(steps + 0.5f));
  }
}

template <typename T>
void MinFirst(const float* x, int64_t n, float low, float high, T* y) {
  using Limits = std::numeric_limits<T>;
  // The largest float that is representable in T.
  constexpr float kHighest = sizeof(T) == 4 ? 2147483520.0f : static_cast<float>(Limits::max());
  const QuantizedSteps<T> steps(low, high);
  for (int64_t i = 0; i < n; ++i) {
    const float number = steps.Number(x[i]);
    if (std::isnan(number)) {
      y[i] = sizeof(T) == 4 ? Limits::min() : T(0);
    } else {
      y[i] = static_cast<T>(Clamp(number, steps.kLowest, kHighest));
    }
  }
}

// Keeps zero. Moves the ends of the range to those of T.
template <typename T>
void Scaled(const float* x, int64_t n, float low, float high, float scale, bool half_to_even, T* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float steps = Clamp(x[i], low, high) * scale;
    y[i] = ToQuantized<T>(half_to_even ? std::nearbyint(steps) : std::round(steps));
  }
}
template <typename T>
float FitScale(bool narrow, float* low, float* high) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const float least_number = static_cast<float>(static_cast<int64_t>(std::numeric_limits<T>::min()) + (narrow ? 1 : 0));
  const float most_number = static_cast<float>(std::numeric_limits<T>::max());
  const float by_low = least_number * *low > 0 ? least_number / *low : kMost;
  const float by_high = most_number * *high > 0 ? most_number / *high : kMost;
  const float scale = std::min(by_low, by_high);
  *low = least_number / scale;
  *high = most_number / scale;
  return scale;
}

class QuantizeV2Kernel : public Kernel {
 public:
  explicit QuantizeV2Kernel(KernelInit& init) {
    std::string mode, round_mode;
    init.Attr("mode", &mode);
    init.Attr("round_mode", &round_mode);
    init.Attr("narrow_range", &narrow_range_);
    init.Attr("axis", &axis_);
    init.Attr("ensure_minimum_range", &ensure_minimum_range_);
    if (!init.status().ok()) return;
    mode_ = mode == "SCALED"      ? QuantizeMode::kScaled
            : mode == "MIN_FIRST" ? QuantizeMode::kMinFirst
                                  : QuantizeMode::kMinCombined;
    half_to_even_ = round_mode == "HALF_TO_EVEN";
    if (half_to_even_ && mode_ != QuantizeMode::kScaled) {
      init.Fail(
          InvalidArgument("Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '", mode, "'."));
    }
    if (axis_ < -1) init.Fail(InvalidArgument("Axis must be at least -1. Found ", axis_));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (axis_ >= x.rank()) {
      return InvalidArgument("axis must be less than the number of the input's dimensions, but it is ", axis_,
                             " and the input has ", x.rank());
    }
    const RangeSlices slices = RangeSlices::Of(x.shape(), axis_);
    MR_RETURN_IF_ERROR(CheckRange(ctx.input(1), "min_range", slices.count));
    MR_RETURN_IF_ERROR(CheckRange(ctx.input(2), "max_range", slices.count));
    if (mode_ == QuantizeMode::kMinFirst && axis_ != -1) {
      return Unimplemented("MIN_FIRST mode is not implemented for Quantize with axis != -1.");
    }
    const Shape range_shape = axis_ == -1 ? Shape() : Shape({slices.count});
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * low, ctx.AllocateOutput(1, range_shape));
    MR_ASSIGN_OR_RETURN(Tensor * high, ctx.AllocateOutput(2, range_shape));
    MR_ASSIGN_OR_RETURN(Tensor scale, ctx.AllocateTemp(DType::kFloat, range_shape));
    for (int64_t i = 0; i < slices.count; ++i) {
      MR_RETURN_IF_ERROR(Widen(ctx.input(1).data<float>()[i], ctx.input(2).data<float>()[i], low->data<float>() + i,
                               high->data<float>() + i));
    }
    const bool known = DispatchType(QuantizedTypes(), UnquantizedType(y->dtype()), [&](auto tag) {
      Quantize<typename decltype(tag)::type>(ctx, slices, low->data<float>(), high->data<float>(), scale.data<float>(),
                                             y);
    });
    return known ? absl::OkStatus() : InvalidArgument("QuantizeV2 does not make ", y->dtype());
  }

 private:
  Status CheckRange(const Tensor& range, const char* name, int64_t count) const {
    if (axis_ == -1) {
      if (range.num_elements() == 1) return absl::OkStatus();
      return InvalidArgument("If axis is not specified, ", name,
                             " must contain a single float element, but it contains ", range.num_elements(),
                             " elements");
    }
    if (range.rank() == 1 && range.dim(0) == count) return absl::OkStatus();
    return InvalidArgument("If axis is specified, ", name,
                           " must be a 1-D tensor as long as that axis of the input, which is ", count,
                           ", but it has shape ", range.shape().ToString());
  }

  // The range includes zero and is not too small to divide by.
  Status Widen(float given_low, float given_high, float* low, float* high) const {
    if (given_high < given_low) return InvalidArgument("input_max_range must be larger than input_min_range.");
    *low = std::min(0.0f, given_low);
    const float least = std::max(1.0f, std::max(std::abs(given_low), std::abs(given_high))) * ensure_minimum_range_;
    *high = std::max(0.0f, std::max(given_high, *low + least));
    return absl::OkStatus();
  }

  template <typename T>
  void Quantize(KernelContext& ctx, const RangeSlices& slices, float* low, float* high, float* scale, Tensor* y) const {
    if (mode_ == QuantizeMode::kScaled) {
      for (int64_t i = 0; i < slices.count; ++i) scale[i] = FitScale<T>(narrow_range_, low + i, high + i);
    }
    const float* from = ctx.input(0).data<float>();
    T* to = y->raw<T>();
    slices.ForEach(ctx, [&](int64_t s, int64_t begin, int64_t n) {
      switch (mode_) {
        case QuantizeMode::kMinCombined:
          return MinCombined(from + begin, n, low[s], high[s], to + begin);
        case QuantizeMode::kMinFirst:
          return MinFirst(from + begin, n, low[s], high[s], to + begin);
        case QuantizeMode::kScaled:
          return Scaled(from + begin, n, low[s], high[s], scale[s], half_to_even_, to + begin);
      }
    });
  }

  QuantizeMode mode_ = QuantizeMode::kMinCombined;
  bool half_to_even_ = false;
  bool narrow_range_ = false;
  int64_t axis_ = -1;
  float ensure_minimum_range_ = 0.01f;
};

MILLRACE_OP(QuantizeV2)
    .Summary("Quantizes floats in a range, and returns the range that was used.")
    .Input("input: float")
    .Input("min_range: float")
    .Input("max_range: float")
    .Output("output: T")
    .Output("output_min: float")
    .Output("output_max: float")
    .Attr("T: {qint8, quint8, qint32, qint16, quint16}")
    .Attr("mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'")
    .Attr("round_mode: {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'")
    .Attr("narrow_range: bool = false")
    .Attr("axis: int = -1")
    .Attr("ensure_minimum_range: float = 0.01")
    .Shape(QuantizeShape)
    .NotDifferentiable();
MILLRACE_KERNEL(QuantizeV2, kCpu, QuantizeV2Kernel);

}  // namespace
}  // namespace millrace
