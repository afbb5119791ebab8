// ScaleAndTranslate: resampling with a kernel of any width, and its gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// How much a pixel at a distance of x >= 0 counts; nothing beyond the radius.
struct SampleKernel {
  float radius = 0;
  float (*weight)(float x, float radius) = nullptr;
};

float LanczosWeight(float x, float radius) {
  if (x > radius) return 0;
  if (x <= 1e-3f) return 1;
  const float angle = static_cast<float>(M_PI) * x;
  return radius * std::sin(angle) * std::sin(angle / radius) / (angle * angle);
}
float GaussianWeight(float x, float radius) {
  const float sigma = radius / 3;
  return x >= radius ? 0 : std::exp(-x * x / (2 * sigma * sigma));
}
float BoxWeight(float x, float) { return x < 0.5f ? 1.0f : (x == 0.5f ? 0.5f : 0.0f); }
float TriangleWeight(float x, float) { return x < 1 ? 1 - x : 0; }
float KeysCubicWeight(float x, float) {
  if (x >= 2) return 0;
  if (x >= 1) return ((-0.5f * x + 2.5f) * x - 4) * x + 2;
  return ((1.5f * x - 2.5f) * x) * x + 1;
}
float MitchellCubicWeight(float x, float) {
  if (x >= 2) return 0;
  if (x >= 1) return ((-7.0f / 18 * x + 2) * x - 10.0f / 3) * x + 16.0f / 9;
  return ((7.0f / 6 * x - 2) * x) * x + 8.0f / 9;
}

StatusOr<SampleKernel> FindSampleKernel(const std::string& name) {
  static constexpr struct {
    const char* name;
    SampleKernel kernel;
  } kKernels[] = {{"lanczos1", {1, LanczosWeight}},
                  {"lanczos3", {3, LanczosWeight}},
                  {"lanczos5", {5, LanczosWeight}},
                  {"gaussian", {1.5f, GaussianWeight}},
                  {"box", {1, BoxWeight}},
                  {"triangle", {1, TriangleWeight}},
                  {"keyscubic", {2, KeysCubicWeight}},
                  {"mitchellcubic", {2, MitchellCubicWeight}}};
  for (const auto& known : kKernels) {
    if (name == known.name) return known.kernel;
  }
  return InvalidArgument("Unrecognized kernel type: ", name);
}

// One dimension: the input pixels of each output pixel, with their weights.
struct SampleSpans {
  struct Span {
    int64_t start = 0;
    std::vector<float> weights = {};
  };
  std::vector<Span> spans;  // by output pixel; without weights where it lies outside the input

  SampleSpans(const SampleKernel& kernel, int64_t in, int64_t out, float scale, float translation, bool antialias)
      : spans(static_cast<size_t>(out)) {
    const float inverse = 1.0f / scale;
    // A kernel is widened to smooth when the image shrinks, but not when it grows.
    const float width = antialias ? std::max(inverse, 1.0f) : 1.0f;
    const auto last = static_cast<float>(in - 1);
    for (int64_t i = 0; i < out; ++i) {
      const float at = (static_cast<float>(i) + 0.5f) * inverse - inverse * translation;
      if (!(at >= 0 && at <= static_cast<float>(in))) continue;
      const float reach = kernel.radius * width;
      const auto begin = static_cast<int64_t>(std::clamp(std::ceil(at - reach - 0.5f), 0.0f, last));
      const auto end = static_cast<int64_t>(std::clamp(std::floor(at + reach - 0.5f), 0.0f, last)) + 1;
      Span& span = spans[i];
      span.start = begin;
      float sum = 0;
      for (int64_t p = begin; p < end; ++p) {
        const float distance = std::abs((static_cast<float>(p) + 0.5f - at) / width);
        span.weights.push_back(kernel.weight(distance, kernel.radius));
        sum += span.weights.back();
      }
      if (std::abs(sum) < 1000 * std::numeric_limits<float>::min()) {
        span.weights.clear();
        continue;
      }
      for (float& weight : span.weights) weight /= sum;
    }
  }
};

// Both dimensions of an op, with the sizes of its images.
struct Resampling {
  SampleSpans rows, columns;
  int64_t in_height, in_width, out_height, out_width, channels;

  // One image: first its columns, then its rows.
  void Forward(const float* image, float* out) const {
    std::vector<float> across(static_cast<size_t>(out_width * channels));
    std::fill(out, out + out_height * out_width * channels, 0.0f);
    std::vector<bool> needed(static_cast<size_t>(in_height));
    for (const auto& span : rows.spans) {
      for (size_t k = 0; k < span.weights.size(); ++k) needed[span.start + k] = true;
    }
    for (int64_t y = 0; y < in_height; ++y) {
      if (!needed[y]) continue;
      Across(image + y * in_width * channels, across.data());
      for (int64_t r = 0; r < out_height; ++r) {
        const auto& span = rows.spans[r];
        const int64_t k = y - span.start;
        if (k < 0 || k >= static_cast<int64_t>(span.weights.size())) continue;
        float* to = out + r * out_width * channels;
        for (size_t e = 0; e < across.size(); ++e) to[e] += span.weights[k] * across[e];
      }
    }
  }

  // The gradient of one image.
  void Backward(const float* grad, float* image) const {
    std::vector<float> down(static_cast<size_t>(out_width * channels));
    std::fill(image, image + in_height * in_width * channels, 0.0f);
    for (int64_t y = 0; y < in_height; ++y) {
      std::fill(down.begin(), down.end(), 0.0f);
      for (int64_t r = 0; r < out_height; ++r) {
        const auto& span = rows.spans[r];
        const int64_t k = y - span.start;
        if (k < 0 || k >= static_cast<int64_t>(span.weights.size())) continue;
        const float* from = grad + r * out_width * channels;
        for (size_t e = 0; e < down.size(); ++e) down[e] += span.weights[k] * from[e];
      }
      float* row = image + y * in_width * channels;
      for (int64_t x = 0; x < out_width; ++x) {
        const auto& span = columns.spans[x];
        for (size_t k = 0; k < span.weights.size(); ++k) {
          for (int64_t c = 0; c < channels; ++c) {
            row[(span.start + static_cast<int64_t>(k)) * channels + c] += span.weights[k] * down[x * channels + c];
          }
        }
      }
    }
  }

 private:
  void Across(const float* row, float* out) const {
    for (int64_t x = 0; x < out_width; ++x, out += channels) {
      const auto& span = columns.spans[x];
      std::fill(out, out + channels, 0.0f);
      for (size_t k = 0; k < span.weights.size(); ++k) {
        const float* from = row + (span.start + static_cast<int64_t>(k)) * channels;
        for (int64_t c = 0; c < channels; ++c) out[c] += span.weights[k] * from[c];
      }
    }
  }
};

class ScaleAndTranslateBase : public Kernel {
 public:
  explicit ScaleAndTranslateBase(KernelInit& init) {
    std::string name;
    init.Attr("kernel_type", &name);
    init.Attr("antialias", &antialias_);
    StatusOr<SampleKernel> kernel = FindSampleKernel(name);
    if (kernel.ok()) {
      kernel_ = *kernel;
    } else {
      init.Fail(kernel.status());
    }
  }

 protected:
  // `scale` and `translation` are the inputs of those numbers.
  StatusOr<Resampling> Plan(KernelContext& ctx, const Tensor& in, int64_t out_height, int64_t out_width,
                            int scale) const {
    const Tensor &scales = ctx.input(scale), &translations = ctx.input(scale + 1);
    if (scales.num_elements() != 2)
      return InvalidArgument("scale must have two elements, but has ", scales.num_elements());
    if (translations.num_elements() != 2) {
      return InvalidArgument("translation must have two elements, but has ", translations.num_elements());
    }
    const float *s = scales.data<float>(), *t = translations.data<float>();
    if (!(s[0] > 0) || !(s[1] > 0)) {
      return InvalidArgument("row_scale and col_scale must be greater than zero, but are ", s[0], " and ", s[1]);
    }
    return Resampling{.rows = SampleSpans(kernel_, in.dim(1), out_height, s[0], t[0], antialias_),
                      .columns = SampleSpans(kernel_, in.dim(2), out_width, s[1], t[1], antialias_),
                      .in_height = in.dim(1),
                      .in_width = in.dim(2),
                      .out_height = out_height,
                      .out_width = out_width,
                      .channels = in.dim(3)};
  }

 private:
  SampleKernel kernel_;
  bool antialias_ = true;
};

class ScaleAndTranslateKernel : public ScaleAndTranslateBase {
 public:
  using ScaleAndTranslateBase::ScaleAndTranslateBase;
  Status Compute(KernelContext& ctx) override {
    const Tensor &images = ctx.input(0), &size = ctx.input(1);
    if (images.rank() != 4) return InvalidArgument("input must be 4-dimensional", images.shape().ToString());
    if (size.rank() != 1 || size.dim(0) != 2) {
      return InvalidArgument("output_size must be a vector of two elements, but has shape ", size.shape().ToString());
    }
    const int64_t height = size.data<int32_t>()[0], width = size.data<int32_t>()[1];
    if (height <= 0 || width <= 0) return InvalidArgument("output dimensions must be positive");
    if (images.dim(1) <= 0 || images.dim(2) <= 0) return InvalidArgument("input image must be of non-zero size");
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({images.dim(0), height, width, images.dim(3)}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const Resampling plan, Plan(ctx, images, height, width, 2));
    const ImageFloats in(images);
    for (int64_t i = 0; i < images.dim(0); ++i) {
      plan.Forward(in.data() + i * images.shape().Product(1, 4), out->data<float>() + i * shape.Product(1, 4));
    }
    return absl::OkStatus();
  }
};

class ScaleAndTranslateGradKernel : public ScaleAndTranslateBase {
 public:
  using ScaleAndTranslateBase::ScaleAndTranslateBase;
  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &images = ctx.input(1);
    if (grads.rank() != 4 || images.rank() != 4) {
      return InvalidArgument("grads and original_image must be 4-dimensional, but have shapes ",
                             grads.shape().ToString(), " and ", images.shape().ToString());
    }
    if (grads.dim(0) != images.dim(0) || grads.dim(3) != images.dim(3)) {
      return InvalidArgument("grads and original_image must have the same number of images and channels");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, images.shape()));
    if (images.num_elements() == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const Resampling plan, Plan(ctx, images, grads.dim(1), grads.dim(2), 2));
    for (int64_t i = 0; i < images.dim(0); ++i) {
      plan.Backward(grads.data<float>() + i * grads.shape().Product(1, 4),
                    out->data<float>() + i * images.shape().Product(1, 4));
    }
    return absl::OkStatus();
  }
};

Status ScaleAndTranslateGradShape(ShapeContext& c) {
  c.set_output(0, c.input(1));
  return absl::OkStatus();
}

Status ScaleAndTranslateGradient(GradientContext& c) {
  const Endpoint image = c.input(0).dtype() == DType::kFloat ? c.input(0) : c.Cast(c.input(0), DType::kFloat);
  c.set_input_grad(0, c.Op("ScaleAndTranslateGrad", {c.grad(), image, c.input(2), c.input(3)},
                           c.CopyAttrs({"kernel_type", "antialias"})));
  return c.status();
}

MILLRACE_OP(ScaleAndTranslate)
    .Input("images: T")
    .Input("size: int32")
    .Input("scale: float")
    .Input("translation: float")
    .Output("resized_images: float")
    .Attr("T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double}")
    .Attr("kernel_type: string = 'lanczos3'")
    .Attr("antialias: bool = true")
    .Shape(ResizedImagesShape)
    .Gradient(ScaleAndTranslateGradient)
    .Summary("Images that are scaled, moved and resampled with a kernel.");
MILLRACE_OP(ScaleAndTranslateGrad)
    .Input("grads: T")
    .Input("original_image: T")
    .Input("scale: float")
    .Input("translation: float")
    .Output("output: T")
    .Attr("T: {float}")
    .Attr("kernel_type: string = 'lanczos3'")
    .Attr("antialias: bool = true")
    .Shape(ScaleAndTranslateGradShape)
    .NotDifferentiable()
    .Summary("The gradient of ScaleAndTranslate.");
MILLRACE_KERNEL(ScaleAndTranslate, kCpu, ScaleAndTranslateKernel);
MILLRACE_KERNEL(ScaleAndTranslateGrad, kCpu, ScaleAndTranslateGradKernel);

}  // namespace
}  // namespace millrace
