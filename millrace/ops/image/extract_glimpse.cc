// ExtractGlimpse: windows of images at given places; what lies outside an image is noise.
#include <algorithm>
#include <string>

#include "millrace/base/philox.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status ExtractGlimpseShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape offsets, c.WithRank(2, 2));
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  int64_t height = -1, width = -1;
  if (const Tensor* size = c.constant(1); size != nullptr && size->num_elements() == 2) {
    height = size->data<int32_t>()[0];
    width = size->data<int32_t>()[1];
    if (height < 0 || width < 0) return InvalidArgument("size must not be negative");
  }
  c.set_output(0, PartialShape({in.dim(0) < 0 ? offsets.dim(0) : in.dim(0), height, width, in.dim(3)}));
  return absl::OkStatus();
}

MILLRACE_OP(ExtractGlimpse)
    .Summary("Windows of images; an offset is always that of a window's centre.")
    .Input("input: float")
    .Input("size: int32")
    .Input("offsets: float")
    .Output("glimpse: float")
    .Attr("centered: bool = true")
    .Attr("normalized: bool = true")
    .Attr("uniform_noise: bool = true")
    .Attr("noise: string = 'uniform'")
    .Shape(ExtractGlimpseShape)
    .NotDifferentiable();

MILLRACE_OP(ExtractGlimpseV2)
    .Summary("Windows of images; offsets are of corners, or of centres if normalized and centered.")
    .Input("input: float")
    .Input("size: int32")
    .Input("offsets: float")
    .Output("glimpse: float")
    .Attr("centered: bool = true")
    .Attr("normalized: bool = true")
    .Attr("uniform_noise: bool = true")
    .Attr("noise: string = 'uniform'")
    .Shape(ExtractGlimpseShape)
    .NotDifferentiable();

class ExtractGlimpseKernel : public Kernel {
 public:
  explicit ExtractGlimpseKernel(KernelInit& init) : first_version_(init.node().is_type("ExtractGlimpse")) {
    init.Attr("centered", &centered_);
    init.Attr("normalized", &normalized_);
    bool uniform = true;
    init.Attr("uniform_noise", &uniform);
    init.Attr("noise", &noise_);
    if (uniform && !noise_.empty() && noise_ != "uniform") {
      init.Fail(InvalidArgument("The uniform_noise and noise should not be specified at the same time"));
    }
    if (noise_.empty()) noise_ = uniform ? "uniform" : "gaussian";
    if (noise_ != "uniform" && noise_ != "gaussian" && noise_ != "zero") {
      init.Fail(InvalidArgument("noise must be uniform, gaussian or zero, but is '", noise_, "'"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &images = ctx.input(0), &size = ctx.input(1), &offsets = ctx.input(2);
    if (images.rank() != 4) return InvalidArgument("input must be 4-dimensional, but is ", images.shape().ToString());
    if (size.rank() != 1 || size.dim(0) != 2) {
      return InvalidArgument("input must be a vector of size 2 (height, width), but is ", size.shape().ToString());
    }
    const int64_t height = size.data<int32_t>()[0], width = size.data<int32_t>()[1];
    if (height < 0 || width < 0) return InvalidArgument("size must not be negative");
    if (offsets.rank() != 2 || offsets.dim(0) != images.dim(0) || offsets.dim(1) != 2) {
      return InvalidArgument("offsets must be of shape [", images.dim(0), ", 2], but is ", offsets.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({images.dim(0), height, width, images.dim(3)}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    FillWithNoise(out);
    for (int64_t i = 0; i < images.dim(0); ++i) {
      const float* offset = offsets.data<float>() + 2 * i;
      CopyWindow(images, i, Begin(offset[0], images.dim(1), height), Begin(offset[1], images.dim(2), width), out);
    }
    return absl::OkStatus();
  }

 private:
  // Far outside of any image; sums with it do not overflow.
  static constexpr float kFar = 1e12f;

  // Where a window of `size` begins in a dimension of `extent`.
  int64_t Begin(float offset, int64_t extent, int64_t size) const {
    const auto whole = static_cast<float>(extent);
    float at = normalized_ ? offset * whole : offset;
    if (centered_) at = (first_version_ || normalized_ ? at / 2.0f : at) + whole / 2.0f;
    if (first_version_ || (centered_ && normalized_)) at -= static_cast<float>(size) / 2.0f;
    return at == at ? static_cast<int64_t>(std::clamp(at, -kFar, kFar)) : static_cast<int64_t>(kFar);
  }

  static void CopyWindow(const Tensor& images, int64_t i, int64_t top, int64_t left, Tensor* out) {
    const int64_t channels = images.dim(3);
    const int64_t first = std::max<int64_t>(left, 0), end = std::min(left + out->dim(2), images.dim(2));
    if (first >= end) return;
    for (int64_t y = 0; y < out->dim(1); ++y) {
      const int64_t row = top + y;
      if (row < 0 || row >= images.dim(1)) continue;
      const float* from = images.data<float>() + ((i * images.dim(1) + row) * images.dim(2) + first) * channels;
      float* to = out->data<float>() + ((i * out->dim(1) + y) * out->dim(2) + first - left) * channels;
      std::copy_n(from, (end - first) * channels, to);
    }
  }

  void FillWithNoise(Tensor* out) const {
    float* y = out->data<float>();
    const int64_t n = out->num_elements();
    if (noise_ == "zero") {
      std::fill_n(y, n, 0.0f);
      return;
    }
    // Noise has no seed: every run draws other numbers.
    Philox stream(random::Unpredictable(), random::Unpredictable());
    for (int64_t i = 0; i < n; i += 4) {
      const Philox::Group group = stream();
      float numbers[4];
      if (noise_ == "uniform") {
        random::Uniform<float>()(group.data(), numbers);
      } else {
        random::Normal<float>()(group.data(), numbers);
      }
      std::copy_n(numbers, std::min<int64_t>(4, n - i), y + i);
    }
  }

  const bool first_version_;
  bool centered_ = true, normalized_ = true;
  std::string noise_;
};

MILLRACE_KERNEL(ExtractGlimpse, kCpu, ExtractGlimpseKernel);
MILLRACE_KERNEL(ExtractGlimpseV2, kCpu, ExtractGlimpseKernel);

}  // namespace
}  // namespace millrace
