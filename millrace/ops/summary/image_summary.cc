// ImageSummary: images as PNGs.
#include <cmath>
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/summary/png.h"
#include "millrace/ops/summary/summary_output.h"
#include "millrace/ops/summary/summary_values.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <typename T>
bool IsFinitePixel(const T* pixel, int channels) {
  for (int k = 0; k < channels; ++k) {
    if (!std::isfinite(static_cast<float>(pixel[k]))) return false;
  }
  return true;
}

// Scales one image to bytes: by 255 / maximum if all values are non-negative, otherwise by 127 / largest magnitude
// around 128. Non-finite pixels get the bad colour and do not affect the scale.
template <typename T>
void ToBytes(const T* from, int64_t pixels, int channels, const uint8_t* bad_color, uint8_t* to) {
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (int64_t i = 0; i < pixels; ++i) {
    if (!IsFinitePixel(from + i * channels, channels)) continue;
    for (int k = 0; k < channels; ++k) {
      const auto value = static_cast<float>(from[i * channels + k]);
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  constexpr float kZero = 1e-6f;
  T scale, offset;
  if (low < 0) {
    const float most = std::max(std::abs(low), std::abs(high));
    scale = T(most < kZero ? 0.0f : 127.0f / most);
    offset = T(128.0f);
  } else {
    scale = T(high < kZero ? 0.0f : 255.0f / high);
    offset = T(0.0f);
  }
  for (int64_t i = 0; i < pixels; ++i) {
    const bool finite = IsFinitePixel(from + i * channels, channels);
    for (int k = 0; k < channels; ++k) {
      const int64_t at = i * channels + k;
      to[at] =
          finite ? static_cast<uint8_t>(static_cast<int>(static_cast<T>(T(from[at] * scale) + offset))) : bad_color[k];
    }
  }
}

// Encodes image `i` of a batch.
StatusOr<std::string> Encode(const Tensor& images, int64_t i, absl::Span<const uint8_t> bad_color) {
  const int64_t height = images.dim(1), width = images.dim(2), size = height * width * images.dim(3);
  const int channels = static_cast<int>(images.dim(3));
  if (images.dtype() == DType::kUInt8) {
    return EncodePng({images.data<uint8_t>() + i * size, static_cast<size_t>(size)}, height, width, channels);
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  DispatchType(Types<float, half, double>(), images.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ToBytes(images.data<T>() + i * size, height * width, channels, bad_color.data(), bytes.data());
  });
  return EncodePng(bytes, height, width, channels);
}

}  // namespace

Status AddImages(const std::string& tag, const Tensor& images, int64_t max_images, absl::Span<const uint8_t> bad_color,
                 pb::Summary* summary) {
  const int64_t channels = images.rank() == 4 ? images.dim(3) : 0;
  if (channels != 1 && channels != 3 && channels != 4) {
    return InvalidArgument("Tensor must be 4-D with last dim 1, 3, or 4, not ", images.shape().ToString());
  }
  const int64_t height = images.dim(1), width = images.dim(2);
  if (images.dim(0) > 0 && (height == 0 || width == 0)) {
    return InvalidArgument("input tensor must have non-zero dims. Found: ", images.shape().ToString());
  }
  if (height >= std::numeric_limits<int32_t>::max() || width >= std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("Tensor too large for summary ", images.shape().ToString());
  }
  if (images.dtype() != DType::kUInt8 && channels > static_cast<int64_t>(bad_color.size())) {
    return InvalidArgument("expected depth <= bad_color.size, got depth = ", channels,
                           ", bad_color.size = ", bad_color.size());
  }
  const int64_t n = std::min(max_images, images.dim(0));
  for (int64_t i = 0; i < n; ++i) {
    pb::Summary::Value* value = summary->add_value();
    value->set_tag(max_images > 1 ? absl::StrCat(tag, "/image/", i) : absl::StrCat(tag, "/image"));
    value->mutable_image()->set_height(static_cast<int32_t>(height));
    value->mutable_image()->set_width(static_cast<int32_t>(width));
    value->mutable_image()->set_colorspace(static_cast<int32_t>(channels));
    MR_ASSIGN_OR_RETURN(*value->mutable_image()->mutable_encoded_image_string(), Encode(images, i, bad_color));
  }
  return absl::OkStatus();
}

namespace {

class ImageSummaryKernel : public Kernel {
 public:
  explicit ImageSummaryKernel(KernelInit& init) {
    init.Attr("max_images", &max_images_);
    Tensor bad_color;
    init.Attr("bad_color", &bad_color);
    if (!init.status().ok()) return;
    if (bad_color.dtype() != DType::kUInt8) {
      init.Fail(InvalidArgument("bad_color must be uint8, got ", bad_color.dtype()));
    } else if (bad_color.rank() == 1) {
      const auto values = bad_color.flat<uint8_t>();
      bad_color_.assign(values.begin(), values.end());
    } else if (bad_color.rank() > 1) {  // a scalar is the schema's default, which has no colour
      init.Fail(InvalidArgument("bad_color must be a vector, got shape ", bad_color.shape().ToString()));
    }
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* tag, TagInput(ctx, 0));
    pb::Summary summary;
    MR_RETURN_IF_ERROR(AddImages(*tag, ctx.input(1), max_images_, bad_color_, &summary));
    return SetSummary(ctx, summary);
  }
  bool is_expensive() const override { return true; }

 private:
  int64_t max_images_ = 3;
  std::vector<uint8_t> bad_color_ = {255, 0, 0, 255};  // opaque red
};

MILLRACE_OP(ImageSummary)
    .Input("tag: string")
    .Input("tensor: T")
    .Output("summary: string")
    .Attr("max_images: int >= 1 = 3")
    .Attr("T: {uint8, float, half, double} = DT_FLOAT")
    .Attr("bad_color: tensor = { dtype: DT_UINT8 }")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A Summary with images, as PNGs.");
MILLRACE_KERNEL(ImageSummary, kCpu, ImageSummaryKernel);

}  // namespace
}  // namespace millrace
