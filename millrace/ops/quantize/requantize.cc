// RequantizationRange and Requantize: convert 32-bit sums of products of bytes back to bytes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/ops/quantize/ranges.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr int64_t kRequantizeGrain = 16384;

Status CheckScalars(const KernelContext& ctx) {
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    if (ctx.input(i).rank() == 0) continue;
    return InvalidArgument("`", ctx.node().op().inputs[static_cast<size_t>(i)].name, "` must be rank 0 but is rank ",
                           ctx.input(i).rank());
  }
  return absl::OkStatus();
}

// The value of a quantized number, computed in double precision.
float Value(int32_t number, float min, float max) {
  if (min == max) return min;
  constexpr double kSteps = 4294967296.0;
  const double step = static_cast<double>(max - min) * (kSteps / (kSteps - 1)) / kSteps;
  const auto float_step = static_cast<float>(step);
  const double first = std::round(min / float_step) * float_step;
  return static_cast<float>(first + (static_cast<double>(number) - std::numeric_limits<int32_t>::min()) * step);
}

class RequantizationRangeKernel : public Kernel {
 public:
  explicit RequantizationRangeKernel(KernelInit& init) {
    if (init.input_type(0) != DType::kQInt32) FailDType(init, init.input_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_RETURN_IF_ERROR(CheckScalars(ctx));
    const float min = ctx.input(1).scalar<float>(), max = ctx.input(2).scalar<float>();
    MR_ASSIGN_OR_RETURN(Tensor * low, ctx.AllocateOutput(0, Shape()));
    MR_ASSIGN_OR_RETURN(Tensor * high, ctx.AllocateOutput(1, Shape()));
    int32_t least = std::numeric_limits<int32_t>::max(), most = std::numeric_limits<int32_t>::min();
    const int32_t* numbers = x.raw<int32_t>();
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      least = std::min(least, numbers[i]);
      most = std::max(most, numbers[i]);
    }
    // Zero stays in the range: padding needs it.
    low->scalar<float>() = std::min(0.0f, Value(least, min, max));
    high->scalar<float>() = Value(most, min, max);
    return absl::OkStatus();
  }
};

// To signed bytes, by way of floats.
void Requantize(KernelContext& ctx, int8_t* out) {
  const float min_in = ctx.input(1).scalar<float>(), max_in = ctx.input(2).scalar<float>();
  const float min_out = ctx.input(3).scalar<float>(), max_out = ctx.input(4).scalar<float>();
  constexpr double kSteps = 256;
  const double per_unit =
      min_out == max_out ? 0 : kSteps / (static_cast<double>(max_out - min_out) * (kSteps / (kSteps - 1)));
  const double first = std::round(min_out * per_unit) + 128;
  const int32_t* x = ctx.input(0).raw<int32_t>();
  ctx.ParallelFor(ctx.input(0).num_elements(), kRequantizeGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double number = std::round(Value(x[i], min_in, max_in) * per_unit) - first;
      out[i] = std::isnan(number) ? int8_t{0} : static_cast<int8_t>(std::clamp(number, -128.0, 127.0));
    }
  });
}

// A cast that is defined for every input.
int64_t ToInt64(double x) {
  return x >= -9.2e18 && x <= 9.2e18 ? static_cast<int64_t>(x) : std::numeric_limits<int64_t>::min();
}

// To unsigned bytes, as in TensorFlow: in fixed point with 16 fractional bits. Products wrap.
void Requantize(KernelContext& ctx, uint8_t* out) {
  constexpr int kShift = 16;
  constexpr int64_t kOne = int64_t{1} << kShift;
  const float min_in = ctx.input(1).scalar<float>(), max_in = ctx.input(2).scalar<float>();
  const float min_out = ctx.input(3).scalar<float>(), max_out = ctx.input(4).scalar<float>();
  const float range_in = max_in - min_in, range_out = max_out - min_out;
  const float centre = static_cast<float>((min_in + max_in) / 2.0);
  const float per_unit = range_out == 0 ? 0.0f : static_cast<float>(255.0 / range_out);
  uint64_t scale = 0, offset = kOne / 2;
  if (range_out != 0) {
    scale = static_cast<uint64_t>(ToInt64(255.0 * kOne * range_in / range_out));
    offset -= static_cast<uint64_t>(ToInt64(kOne * (min_out * 255.0) / range_out));
  }
  offset += static_cast<uint64_t>(ToInt64(centre * per_unit * kOne));
  const int32_t* x = ctx.input(0).raw<int32_t>();
  ctx.ParallelFor(ctx.input(0).num_elements(), kRequantizeGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t product = static_cast<int64_t>(static_cast<uint64_t>(int64_t{x[i]}) * scale) >> 32;
      const int64_t number = static_cast<int64_t>(static_cast<uint64_t>(product) + offset) >> kShift;
      out[i] = static_cast<uint8_t>(std::clamp<int64_t>(number, 0, 255));
    }
  });
}

class RequantizeKernel : public Kernel {
 public:
  explicit RequantizeKernel(KernelInit& init) {
    if (init.input_type(0) != DType::kQInt32) FailDType(init, init.input_type(0));
    if (SizeOf(init.output_type(0)) != 1) FailDType(init, init.output_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckScalars(ctx));
    const float low = ctx.input(3).scalar<float>(), high = ctx.input(4).scalar<float>();
    if (!(low <= 0.0f)) return InvalidArgument("requested_output_min must be <= 0, but got ", low);
    if (!(high >= low)) {
      return InvalidArgument("requested_output_max must be >= requested_output_min, but got ", high, " and ", low);
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, ctx.input(0).shape()));
    DispatchType(Types<int8_t, uint8_t>(), UnquantizedType(y->dtype()),
                 [&](auto tag) { Requantize(ctx, y->raw<typename decltype(tag)::type>()); });
    ctx.SetOutput(1, ctx.input(3));
    ctx.SetOutput(2, ctx.input(4));
    return absl::OkStatus();
  }
};

Status CheckScalarShapes(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  return absl::OkStatus();
}
Status RequantizationRangeShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(CheckScalarShapes(c));
  return ScalarShape(c);
}
Status RequantizeShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(CheckScalarShapes(c));
  c.set_output(0, c.input(0));
  c.set_output(1, PartialShape::Scalar());
  c.set_output(2, PartialShape::Scalar());
  return absl::OkStatus();
}

MILLRACE_OP(RequantizationRange)
    .Summary("The actual range of quantized values.")
    .Input("input: Tinput")
    .Input("input_min: float")
    .Input("input_max: float")
    .Output("output_min: float")
    .Output("output_max: float")
    .Attr("Tinput: {qint8, quint8, qint32, qint16, quint16}")
    .Shape(RequantizationRangeShape)
    .NotDifferentiable();
MILLRACE_OP(Requantize)
    .Summary("Converts quantized numbers to fewer bits in another range.")
    .Input("input: Tinput")
    .Input("input_min: float")
    .Input("input_max: float")
    .Input("requested_output_min: float")
    .Input("requested_output_max: float")
    .Output("output: out_type")
    .Output("output_min: float")
    .Output("output_max: float")
    .Attr("Tinput: {qint8, quint8, qint32, qint16, quint16}")
    .Attr("out_type: {qint8, quint8, qint32, qint16, quint16}")
    .Shape(RequantizeShape)
    .NotDifferentiable();
MILLRACE_KERNEL(RequantizationRange, kCpu, RequantizationRangeKernel);
MILLRACE_KERNEL(Requantize, kCpu, RequantizeKernel);

}  // namespace
}  // namespace millrace
