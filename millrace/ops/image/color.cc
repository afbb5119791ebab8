// Colours: RGBToHSV, HSVToRGB, AdjustHue, AdjustSaturation, AdjustContrastv2.
#include <algorithm>
#include <cmath>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr int64_t kColorGrain = 8192;  // pixels per piece

// All three in [0, 1]; T is float or double.
template <typename T>
void RgbToHsv(const T* rgb, T* hsv) {
  const T r = rgb[0], g = rgb[1], b = rgb[2];
  const T high = std::max({r, g, b}), range = high - std::min({r, g, b});
  T h = 0;
  if (range > 0) {
    const T norm = T(1) / (T(6) * range);
    h = r == high ? norm * (g - b) : g == high ? norm * (b - r) + T(2) / T(6) : norm * (r - g) + T(4) / T(6);
    if (h < 0) h += T(1);
  }
  hsv[0] = h;
  hsv[1] = high > 0 ? range / high : T(0);
  hsv[2] = high;
}

template <typename T>
void HsvToRgb(const T* hsv, T* rgb) {
  const T h = hsv[0] * T(6), s = hsv[1], v = hsv[2];
  const auto mix = [&](T part) { return (T(1) - s + s * std::clamp(part, T(0), T(1))) * v; };
  const T r = mix(std::abs(h - T(3)) - T(1)), g = mix(T(2) - std::abs(h - T(2))), b = mix(T(2) - std::abs(h - T(4)));
  rgb[0] = r, rgb[1] = g, rgb[2] = b;
}

Status CheckRgb(const Tensor& images) {
  if (images.rank() < 1) return InvalidArgument("input must be at least 1D", images.shape().ToString());
  if (images.dim(images.rank() - 1) != 3) {
    return FailedPrecondition("input must have 3 channels but input only has ", images.dim(images.rank() - 1),
                              " channels.");
  }
  return absl::OkStatus();
}

// Applies `fn` to each pixel of `in`; half and bfloat16 are computed as float.
template <typename Fn>
Status MapPixels(KernelContext& ctx, const Tensor& in, Fn fn) {
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
  DispatchType(FloatTypes{}, in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const T* from = in.data<T>();
    T* to = out->data<T>();
    ctx.ParallelFor(in.num_elements() / 3, kColorGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * 3; i < end * 3; i += 3) {
        const C pixel[3] = {static_cast<C>(from[i]), static_cast<C>(from[i + 1]), static_cast<C>(from[i + 2])};
        C result[3];
        fn(pixel, result);
        for (int c = 0; c < 3; ++c) to[i + c] = static_cast<T>(result[c]);
      }
    });
  });
  return absl::OkStatus();
}

class RgbToHsvKernel : public Kernel {
 public:
  explicit RgbToHsvKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckRgb(ctx.input(0)));
    return MapPixels(ctx, ctx.input(0), [](const auto* from, auto* to) { RgbToHsv(from, to); });
  }
};

class HsvToRgbKernel : public Kernel {
 public:
  explicit HsvToRgbKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckRgb(ctx.input(0)));
    return MapPixels(ctx, ctx.input(0), [](const auto* from, auto* to) { HsvToRgb(from, to); });
  }
};

// Checks the inputs of the three Adjust ops: images of rank 3 or more and a scalar.
Status CheckAdjust(const KernelContext& ctx, const char* scalar, bool rgb) {
  const Tensor &images = ctx.input(0), &amount = ctx.input(1);
  if (images.rank() < 3) return InvalidArgument("input must be at least 3-D, got shape", images.shape().ToString());
  if (amount.rank() != 0) return InvalidArgument(scalar, " must be scalar: ", amount.shape().ToString());
  if (rgb && images.dim(images.rank() - 1) != 3) {
    return InvalidArgument("input must have 3 channels but instead has ", images.dim(images.rank() - 1), " channels.");
  }
  return absl::OkStatus();
}

class AdjustHueKernel : public Kernel {
 public:
  explicit AdjustHueKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckAdjust(ctx, "delta", true));
    const float delta = ctx.input(1).scalar<float>();
    return MapPixels(ctx, ctx.input(0), [delta](const auto* from, auto* to) {
      RgbToHsv(from, to);
      to[0] += delta;
      to[0] -= std::floor(to[0]);
      HsvToRgb(to, to);
    });
  }
};

class AdjustSaturationKernel : public Kernel {
 public:
  explicit AdjustSaturationKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckAdjust(ctx, "scale", true));
    const float scale = ctx.input(1).scalar<float>();
    return MapPixels(ctx, ctx.input(0), [scale](const auto* from, auto* to) {
      RgbToHsv(from, to);
      to[1] = std::clamp<std::decay_t<decltype(to[1])>>(to[1] * scale, 0, 1);
      HsvToRgb(to, to);
    });
  }
};

// Moves each channel away from its mean over the image.
class AdjustContrastKernel : public Kernel {
 public:
  explicit AdjustContrastKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckAdjust(ctx, "contrast_factor", false));
    const Tensor& images = ctx.input(0);
    const float factor = ctx.input(1).scalar<float>();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, images.shape()));
    if (images.num_elements() == 0) return absl::OkStatus();
    const int rank = images.rank();
    const int64_t channels = images.dim(rank - 1), pixels = images.dim(rank - 3) * images.dim(rank - 2);
    const int64_t batch = images.num_elements() / (channels * pixels);
    const ImageFloats in(images);
    std::vector<float> result(static_cast<size_t>(images.num_elements()));
    ctx.ParallelFor(batch, std::max<int64_t>(1, kColorGrain / (pixels * channels)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* from = in.data() + i * pixels * channels;
        float* to = result.data() + i * pixels * channels;
        for (int64_t c = 0; c < channels; ++c) {
          double sum = 0;
          for (int64_t p = 0; p < pixels; ++p) sum += from[p * channels + c];
          const auto mean = static_cast<float>(sum / static_cast<double>(pixels));
          for (int64_t p = 0; p < pixels; ++p) to[p * channels + c] = (from[p * channels + c] - mean) * factor + mean;
        }
      }
    });
    StoreFloats(result.data(), out);
    return absl::OkStatus();
  }
};

Status RgbShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape images, c.WithRankAtLeast(0, 1));
  if (images.known_rank() && images.dim(images.rank() - 1) >= 0 && images.dim(images.rank() - 1) != 3) {
    return InvalidArgument("Dimension must be 3 but is ", images.dim(images.rank() - 1));
  }
  return UnchangedShape(c);
}

Status AdjustShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(0, 3).status());
  return UnchangedShape(c);
}

MILLRACE_OP(RGBToHSV)
    .Summary("Red, green and blue to hue, saturation and value.")
    .Input("images: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
    .Shape(RgbShape);
MILLRACE_OP(HSVToRGB)
    .Summary("Hue, saturation and value to red, green and blue.")
    .Input("images: T")
    .Output("output: T")
    .Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
    .Shape(RgbShape)
    .NotDifferentiable();
MILLRACE_OP(AdjustContrastv2)
    .Summary("Scales the distance of each channel from its mean.")
    .Input("images: T")
    .Input("contrast_factor: float")
    .Output("output: T")
    .Attr("T: {half, float} = DT_FLOAT")
    .Shape(AdjustShape)
    .NotDifferentiable();
MILLRACE_OP(AdjustHue)
    .Summary("Turns the hue of RGB images.")
    .Input("images: T")
    .Input("delta: float")
    .Output("output: T")
    .Attr("T: {half, float} = DT_FLOAT")
    .Shape(AdjustShape)
    .NotDifferentiable();
MILLRACE_OP(AdjustSaturation)
    .Summary("Scales the saturation of RGB images.")
    .Input("images: T")
    .Input("scale: float")
    .Output("output: T")
    .Attr("T: {half, float} = DT_FLOAT")
    .Shape(AdjustShape)
    .NotDifferentiable();
MILLRACE_KERNEL(RGBToHSV, kCpu, RgbToHsvKernel);
MILLRACE_KERNEL(HSVToRGB, kCpu, HsvToRgbKernel);
MILLRACE_KERNEL(AdjustContrastv2, kCpu, AdjustContrastKernel);
MILLRACE_KERNEL(AdjustHue, kCpu, AdjustHueKernel);
MILLRACE_KERNEL(AdjustSaturation, kCpu, AdjustSaturationKernel);

}  // namespace
}  // namespace millrace
