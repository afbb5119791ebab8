// ImageProjectiveTransformV2 and ImageProjectiveTransformV3: images seen through projective maps of the plane.
#include <algorithm>
#include <cmath>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

enum class Beyond { kConstant, kReflect, kWrap, kNearest };

StatusOr<Beyond> BeyondOf(const std::string& mode) {
  if (mode == "CONSTANT") return Beyond::kConstant;
  if (mode == "REFLECT") return Beyond::kReflect;
  if (mode == "WRAP") return Beyond::kWrap;
  if (mode == "NEAREST") return Beyond::kNearest;
  return InvalidArgument("Invalid mode ", mode, ". Supported types: CONSTANT, REFLECT, WRAP, NEAREST");
}

// A coordinate beyond [0, size - 1], moved into it.
float MovedInto(float at, int64_t size, Beyond beyond) {
  const auto last = static_cast<float>(size - 1), n = static_cast<float>(size);
  if (beyond == Beyond::kConstant) return at;
  if (beyond == Beyond::kNearest || size <= 1) return std::clamp(at, 0.0f, last);
  if (beyond == Beyond::kReflect) {
    if (at < 0) {
      if (at < 2 * n) at += 2 * n * std::trunc(-at / (2 * n));
      at = at < -n ? at + 2 * n : -at - 1;
    } else if (at > last) {
      at -= 2 * n * std::trunc(at / (2 * n));
      if (at >= n) at = 2 * n - at - 1;
    }
  } else if (at < 0) {
    at += n * (std::trunc(-at / last) + 1);
  } else if (at > last) {
    at -= n * std::trunc(at / last);
  }
  // Rounding may have left the range.
  return std::clamp(at, 0.0f, last);
}

template <typename T>
class SampledImage {
 public:
  SampledImage(const T* pixels, int64_t height, int64_t width, int64_t channels, float fill)
      : pixels_(pixels), height_(height), width_(width), channels_(channels), fill_(fill) {}

  float At(int64_t y, int64_t x, int64_t channel) const {
    if (y < 0 || y >= height_ || x < 0 || x >= width_) return fill_;
    return static_cast<float>(pixels_[(y * width_ + x) * channels_ + channel]);
  }
  float Linear(float y, float x, int64_t channel) const {
    const float top = std::floor(y), left = std::floor(x);
    const auto y0 = static_cast<int64_t>(top), x0 = static_cast<int64_t>(left);
    const float above = (left + 1 - x) * At(y0, x0, channel) + (x - left) * At(y0, x0 + 1, channel);
    const float below = (left + 1 - x) * At(y0 + 1, x0, channel) + (x - left) * At(y0 + 1, x0 + 1, channel);
    return (top + 1 - y) * above + (y - top) * below;
  }

 private:
  const T* const pixels_;
  const int64_t height_, width_, channels_;
  const float fill_;
};

class ProjectiveTransformKernel : public Kernel {
 public:
  explicit ProjectiveTransformKernel(KernelInit& init) {
    std::string interpolation;
    init.Attr("interpolation", &interpolation);
    if (interpolation != "NEAREST" && interpolation != "BILINEAR") {
      init.Fail(InvalidArgument("Invalid interpolation ", interpolation, ". Supported types: NEAREST, BILINEAR"));
    }
    linear_ = interpolation == "BILINEAR";
    StatusOr<Beyond> beyond = BeyondOf(init.node().AttrOr<std::string>("fill_mode", "CONSTANT"));
    if (beyond.ok()) {
      beyond_ = *beyond;
    } else {
      init.Fail(beyond.status());
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &images = ctx.input(0), &transforms = ctx.input(1), &size = ctx.input(2);
    if (images.rank() != 4) return InvalidArgument("Input images must have rank 4");
    if (transforms.rank() != 2 || transforms.dim(1) != 8 ||
        (transforms.dim(0) != images.dim(0) && transforms.dim(0) != 1)) {
      return InvalidArgument("Input transform should be num_images x 8 or 1 x 8, but has shape ",
                             transforms.shape().ToString());
    }
    if (size.rank() != 1 || size.dim(0) != 2) {
      return InvalidArgument("output shape must be a vector of two elements, but has shape ", size.shape().ToString());
    }
    const int64_t height = size.data<int32_t>()[0], width = size.data<int32_t>()[1];
    if (height <= 0 || width <= 0) {
      return InvalidArgument("new_height, new_width should be positive, got ", height, " and ", width);
    }
    float fill = 0;
    if (ctx.num_inputs() > 3) {
      if (ctx.input(3).rank() != 0) return InvalidArgument("fill_value must be a scalar");
      fill = ctx.input(3).scalar<float>();
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({images.dim(0), height, width, images.dim(3)}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (out->num_elements() == 0) return absl::OkStatus();
    DispatchType(Pixels{}, out->dtype(),
                 [&](auto tag) { Transform<typename decltype(tag)::type>(ctx, images, transforms, fill, out); });
    return absl::OkStatus();
  }

 private:
  using Pixels = Types<uint8_t, int32_t, int64_t, half, bfloat16, float, double>;

  template <typename T>
  void Transform(KernelContext& ctx, const Tensor& images, const Tensor& transforms, float fill, Tensor* out) const {
    const int64_t height = out->dim(1), width = out->dim(2), channels = out->dim(3);
    ctx.ParallelFor(out->dim(0) * height, std::max<int64_t>(1, 4096 / (width * channels)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t r = begin; r < end; ++r) {
                        const int64_t i = r / height;
                        const SampledImage<T> image(images.data<T>() + i * images.shape().Product(1, 4), images.dim(1),
                                                    images.dim(2), channels, fill);
                        const float* const map = transforms.data<float>() + (transforms.dim(0) == 1 ? 0 : i * 8);
                        Row(image, images, map, static_cast<float>(r % height), width, channels, fill,
                            out->data<T>() + r * width * channels);
                      }
                    });
  }

  template <typename T>
  void Row(const SampledImage<T>& image, const Tensor& images, const float* map, float y, int64_t width,
           int64_t channels, float fill, T* out) const {
    for (int64_t column = 0; column < width; ++column, out += channels) {
      const auto x = static_cast<float>(column);
      const float depth = map[6] * x + map[7] * y + 1;
      if (depth == 0) {
        std::fill(out, out + channels, static_cast<T>(fill));
        continue;
      }
      const float from_x = MovedInto((map[0] * x + map[1] * y + map[2]) / depth, images.dim(2), beyond_);
      const float from_y = MovedInto((map[3] * x + map[4] * y + map[5]) / depth, images.dim(1), beyond_);
      for (int64_t c = 0; c < channels; ++c) {
        // A coordinate that no image has; the comparison is false for NaN too.
        const bool far = !(std::abs(from_x) < 1e9f && std::abs(from_y) < 1e9f);
        const float value = far       ? fill
                            : linear_ ? image.Linear(from_y, from_x, c)
                                      : image.At(std::lround(from_y), std::lround(from_x), c);
        out[c] = static_cast<T>(value);
      }
    }
  }

  bool linear_ = false;
  Beyond beyond_ = Beyond::kConstant;
};

Status ProjectiveTransformShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 2).status());
  return TransformedImagesShape(c, 2);
}

MILLRACE_OP(ImageProjectiveTransformV2)
    .Input("images: dtype")
    .Input("transforms: float")
    .Input("output_shape: int32")
    .Output("transformed_images: dtype")
    .Attr("dtype: {uint8, int32, int64, half, bfloat16, float, double}")
    .Attr("interpolation: string")
    .Attr("fill_mode: string = 'CONSTANT'")
    .Shape(ProjectiveTransformShape)
    .NotDifferentiable()
    .Summary("Images seen through projective maps of the plane.");
MILLRACE_OP(ImageProjectiveTransformV3)
    .Input("images: dtype")
    .Input("transforms: float")
    .Input("output_shape: int32")
    .Input("fill_value: float")
    .Output("transformed_images: dtype")
    .Attr("dtype: {uint8, int32, int64, half, bfloat16, float, double}")
    .Attr("interpolation: string")
    .Attr("fill_mode: string = 'CONSTANT'")
    .Shape(ProjectiveTransformShape)
    .NotDifferentiable()
    .Summary("Images seen through projective maps of the plane, with a value for what lies beyond them.");
MILLRACE_KERNEL(ImageProjectiveTransformV2, kCpu, ProjectiveTransformKernel);
MILLRACE_KERNEL(ImageProjectiveTransformV3, kCpu, ProjectiveTransformKernel);

}  // namespace
}  // namespace millrace
