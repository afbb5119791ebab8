// QuantizeAndDequantize and its later versions: simulate quantization on floats.
#include <cmath>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/quantize/ranges.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

using KernelTypes = Types<float, double>;

// Scales one slice to integers of `bits` bits and back.
template <typename T>
struct Scaling {
  T low, high;  // the range, extended to that of the integers
  T scale, inverse;

  Scaling(T min, T max, bool is_signed, int64_t bits, bool narrow) : low(min), high(max) {
    const int64_t half = int64_t{1} << (bits - 1);
    const T least = static_cast<T>(is_signed ? -half + (narrow ? 1 : 0) : 0);
    const T most = static_cast<T>(is_signed ? half - 1 : 2 * (half - 1) + 1);
    constexpr T kMost = std::numeric_limits<T>::max();
    const T by_low = least * low > 0 ? least / low : kMost;
    const T by_high = most * high > 0 ? most / high : kMost;
    // The end that determines the scale is unchanged.
    if (by_low < by_high) {
      scale = by_low;
      inverse = low / least;
      high = most * inverse;
    } else {
      scale = by_high;
      inverse = high / most;
      low = least * inverse;
    }
  }
};

template <typename T>
T Round(T x, bool half_up) {
  return half_up ? std::floor(x + T(0.5)) : std::nearbyint(x);
}

class QuantizeAndDequantizeKernel : public Kernel {
 public:
  explicit QuantizeAndDequantizeKernel(KernelInit& init) {
    init.Attr("signed_input", &signed_input_);
    init.Attr("range_given", &range_given_);
    const OpSchema& schema = init.node().op();
    bits_given_ = schema.FindAttr("num_bits") == nullptr;
    range_in_attrs_ = schema.FindAttr("input_min") != nullptr;
    if (!bits_given_) init.Attr("num_bits", &num_bits_);
    if (range_in_attrs_) {
      init.Attr("input_min", &input_min_);
      init.Attr("input_max", &input_max_);
    } else {
      init.Attr("narrow_range", &narrow_range_);
      init.Attr("axis", &axis_);
    }
    if (schema.FindAttr("round_mode") != nullptr) {
      std::string round_mode;
      init.Attr("round_mode", &round_mode);
      half_up_ = round_mode == "HALF_UP";
    }
    if (!init.status().ok()) return;
    if (!DispatchType(KernelTypes(), init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
    if (axis_ < -1) init.Fail(InvalidArgument("Axis must be at least -1. Found ", axis_));
    if (!bits_given_) init.Fail(CheckBits(num_bits_));
    if (range_in_attrs_ && range_given_ && input_min_ > input_max_) init.Fail(BadRange(input_min_, input_max_));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (axis_ >= x.rank()) {
      return InvalidArgument("Axis requested is larger than input dimensions. Axis: ", axis_,
                             " Input Dimensions: ", x.rank());
    }
    int64_t bits = num_bits_;
    if (bits_given_) {
      if (ctx.input(3).rank() != 0) {
        return InvalidArgument("Invalid shape. The `num_bits` tensor should be a scalar. Got dimensions: ",
                               ctx.input(3).rank());
      }
      bits = ctx.input(3).scalar<int32_t>();
      MR_RETURN_IF_ERROR(CheckBits(bits));
    }
    const RangeSlices slices = RangeSlices::Of(x.shape(), axis_);
    if (range_given_ && !range_in_attrs_) {
      MR_RETURN_IF_ERROR(CheckRange(ctx.input(1), "input_min", slices.count));
      MR_RETURN_IF_ERROR(CheckRange(ctx.input(2), "input_max", slices.count));
    }
    Status status;
    DispatchType(KernelTypes(), x.dtype(),
                 [&](auto tag) { status = Run<typename decltype(tag)::type>(ctx, slices, bits); });
    return status;
  }

 private:
  Status CheckBits(int64_t bits) const {
    if (bits > 0 && bits < (signed_input_ ? 62 : 63)) return absl::OkStatus();
    return InvalidArgument("num_bits is out of range: ", bits, " with signed_input_ ", signed_input_ ? 1 : 0);
  }
  Status CheckRange(const Tensor& range, const char* name, int64_t count) const {
    if (axis_ == -1 ? range.rank() == 0 : range.rank() == 1 && range.dim(0) == count) return absl::OkStatus();
    if (axis_ == -1) return InvalidArgument(name, " must be a scalar, but has shape ", range.shape().ToString());
    return InvalidArgument(name, " must be a vector of ", count, " elements, as many as the input has on axis ", axis_,
                           ", but has shape ", range.shape().ToString());
  }
  template <typename T>
  static Status BadRange(T min, T max) {
    return InvalidArgument("Invalid range: input_min ", min, " > input_max ", max);
  }

  // The range of one slice: as given, or from its minimum to its maximum.
  template <typename T>
  StatusOr<std::pair<T, T>> Range(const KernelContext& ctx, const RangeSlices& slices, int64_t s) const {
    if (range_given_) {
      if (range_in_attrs_) return std::pair<T, T>(input_min_, input_max_);
      const T min = ctx.input(1).data<T>()[s], max = ctx.input(2).data<T>()[s];
      if (min > max) return BadRange(min, max);
      return std::pair<T, T>(min, max);
    }
    const T* x = ctx.input(0).data<T>();
    T min = std::numeric_limits<T>::infinity(), max = -min;
    for (int64_t o = 0; o < slices.outer; ++o) {
      const T* run = x + (o * slices.count + s) * slices.inner;
      for (int64_t i = 0; i < slices.inner; ++i) {
        min = std::min(min, run[i]);
        max = std::max(max, run[i]);
      }
    }
    return std::pair<T, T>(min, max);
  }

  template <typename T>
  Status Run(KernelContext& ctx, const RangeSlices& slices, int64_t bits) const {
    const Tensor& x = ctx.input(0);
    std::vector<Scaling<T>> scalings;
    if (x.num_elements() > 0) {
      scalings.reserve(static_cast<size_t>(slices.count));
      for (int64_t s = 0; s < slices.count; ++s) {
        MR_ASSIGN_OR_RETURN(const auto range, Range<T>(ctx, slices, s));
        scalings.emplace_back(range.first, range.second, signed_input_, bits, narrow_range_);
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, x.shape()));
    const T* from = x.data<T>();
    T* to = out->data<T>();
    slices.ForEach(ctx, [&](int64_t s, int64_t begin, int64_t n) {
      const Scaling<T>& by = scalings[static_cast<size_t>(s)];
      for (int64_t i = begin; i < begin + n; ++i) {
        T value = from[i];
        if (range_given_) {
          value = value > by.high ? by.high : value;
          value = value < by.low ? by.low : value;
        }
        to[i] = Round(value * by.scale, half_up_) * by.inverse;
      }
    });
    return absl::OkStatus();
  }

  bool signed_input_ = true;
  bool range_given_ = false;
  bool narrow_range_ = false;
  bool half_up_ = false;
  bool bits_given_ = false;  // as an input
  bool range_in_attrs_ = false;
  int64_t num_bits_ = 8;
  int64_t axis_ = -1;
  float input_min_ = 0;
  float input_max_ = 0;
};

Status LaterShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(QuantizeShape(c));
  return c.num_inputs() > 3 ? c.WithRank(3, 0).status() : absl::OkStatus();
}

// Straight-through estimator: rounding is treated as the identity.
Status StraightThrough(GradientContext& c) {
  c.set_input_grad(0, c.grad());
  return absl::OkStatus();
}
Status V4Gradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t axis, c.Attr<int64_t>("axis"));
  Node* node =
      c.AddNode("QuantizeAndDequantizeV4Grad", {c.grad(), c.input(0), c.input(1), c.input(2)}, {{"axis", axis}});
  if (node == nullptr) return c.status();
  for (int i = 0; i < 3; ++i) c.set_input_grad(i, Endpoint{node, i});
  return absl::OkStatus();
}

MILLRACE_OP(QuantizeAndDequantize)
    .Summary("Quantizes and dequantizes in a range given by attrs.")
    .Input("input: T")
    .Output("output: T")
    .Attr("signed_input: bool = true")
    .Attr("num_bits: int = 8")
    .Attr("range_given: bool = false")
    .Attr("input_min: float = 0.0")
    .Attr("input_max: float = 0.0")
    .Attr("T: {bfloat16, half, float, double}")
    .Shape(UnchangedShape)
    .Gradient(StraightThrough);
MILLRACE_OP(QuantizeAndDequantizeV2)
    .Summary("Quantizes and dequantizes.")
    .Input("input: T")
    .Input("input_min: T")
    .Input("input_max: T")
    .Output("output: T")
    .Attr("signed_input: bool = true")
    .Attr("num_bits: int = 8")
    .Attr("range_given: bool = false")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'")
    .Attr("narrow_range: bool = false")
    .Attr("axis: int = -1")
    .Shape(LaterShape)
    .Gradient(StraightThrough);
MILLRACE_OP(QuantizeAndDequantizeV3)
    .Summary("Quantizes and dequantizes; the number of bits is an input.")
    .Input("input: T")
    .Input("input_min: T")
    .Input("input_max: T")
    .Input("num_bits: int32")
    .Output("output: T")
    .Attr("signed_input: bool = true")
    .Attr("range_given: bool = true")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("narrow_range: bool = false")
    .Attr("axis: int = -1")
    .Shape(LaterShape)
    .Gradient(StraightThrough);
MILLRACE_OP(QuantizeAndDequantizeV4)
    .Summary("QuantizeAndDequantizeV2 with a zero gradient outside the range.")
    .Input("input: T")
    .Input("input_min: T")
    .Input("input_max: T")
    .Output("output: T")
    .Attr("signed_input: bool = true")
    .Attr("num_bits: int = 8")
    .Attr("range_given: bool = false")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'")
    .Attr("narrow_range: bool = false")
    .Attr("axis: int = -1")
    .Shape(LaterShape)
    .Gradient(V4Gradient);
MILLRACE_KERNEL(QuantizeAndDequantize, kCpu, QuantizeAndDequantizeKernel);
MILLRACE_KERNEL(QuantizeAndDequantizeV2, kCpu, QuantizeAndDequantizeKernel);
MILLRACE_KERNEL(QuantizeAndDequantizeV3, kCpu, QuantizeAndDequantizeKernel);
MILLRACE_KERNEL(QuantizeAndDequantizeV4, kCpu, QuantizeAndDequantizeKernel);

}  // namespace
}  // namespace millrace
