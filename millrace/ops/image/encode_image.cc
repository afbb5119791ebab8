// EncodePng, EncodeJpeg, EncodeJpegVariableQuality: the bytes of a picture from its pixels; ExtractJpegShape.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/codec.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Checks that image `t` (height, width, channels, after `batch` other dimensions) can be encoded.
StatusOr<Picture> PictureOf(const Tensor& t, int batch, int max_channels) {
  const Picture p{1, t.dim(batch), t.dim(batch + 1), t.dim(batch + 2)};
  MR_RETURN_IF_ERROR(CheckPictureSize(1, std::max<int64_t>(p.height, 1), std::max<int64_t>(p.width, 1),
                                      std::max<int64_t>(p.channels, 1)));
  if (p.channels < 1 || p.channels > max_channels) {
    return InvalidArgument("image must have 1, 2, 3, or 4 channels, but got ", p.channels);
  }
  if (p.height == 0 || p.width == 0) {
    return InvalidArgument("the image has no pixels: its shape is ", t.shape().ToString());
  }
  return p;
}

class EncodePngKernel : public Kernel {
 public:
  explicit EncodePngKernel(KernelInit& init) {
    init.Attr("compression", &compression_);
    if (compression_ < -1 || compression_ > 9) {
      init.Fail(InvalidArgument("compression should be in [-1,9], got ", compression_));
    }
  }
  bool is_expensive() const override { return true; }

  // The last three dimensions are an image; those before them are a batch.
  Status Compute(KernelContext& ctx) override {
    const Tensor& images = ctx.input(0);
    if (images.rank() < 3) {
      return InvalidArgument("images must be at least rank 3, but they have shape ", images.shape().ToString());
    }
    const int batch_rank = images.rank() - 3;
    const Shape batch(images.shape().dims().subspan(0, batch_rank));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, batch));
    if (batch.num_elements() == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const Picture picture, PictureOf(images, batch_rank, 4));
    const bool wide = images.dtype() == DType::kUInt16;
    const auto* pixels = static_cast<const char*>(images.raw_data());
    for (int64_t i = 0; i < batch.num_elements(); ++i) {
      MR_ASSIGN_OR_RETURN(out->data<std::string>()[i],
                          EncodePngPicture(pixels + i * picture.size() * (wide ? 2 : 1), picture, wide, compression_));
    }
    return absl::OkStatus();
  }

 private:
  int compression_ = -1;
};

class EncodeJpegKernel : public Kernel {
 public:
  explicit EncodeJpegKernel(KernelInit& init) : quality_is_input_(init.node().num_inputs() == 2) {
    if (quality_is_input_) return;
    std::string unit;
    init.Attr("format", &format_);
    init.Attr("quality", &options_.quality);
    init.Attr("progressive", &options_.progressive);
    init.Attr("optimize_size", &options_.optimize_size);
    init.Attr("chroma_downsampling", &options_.chroma_downsampling);
    init.Attr("density_unit", &unit);
    init.Attr("x_density", &options_.x_density);
    init.Attr("y_density", &options_.y_density);
    init.Attr("xmp_metadata", &options_.xmp_metadata);
    options_.per_inch = unit == "in";
    if (Status s = CheckQuality(options_.quality); !s.ok()) init.Fail(s);
    if (options_.xmp_metadata.size() > kMaxXmp) {
      init.Fail(InvalidArgument("xmp_metadata has ", options_.xmp_metadata.size(), " bytes, more than fit in a JPEG"));
    }
  }
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    const Tensor& image = ctx.input(0);
    JpegEncoding options = options_;
    if (quality_is_input_) {
      if (ctx.input(1).rank() != 0) {
        return InvalidArgument("quality must be scalar: ", ctx.input(1).shape().ToString());
      }
      options.quality = ctx.input(1).scalar<int32_t>();
      MR_RETURN_IF_ERROR(CheckQuality(options.quality));
    }
    if (image.rank() != 3) return InvalidArgument("image must be 3-dimensional", image.shape().ToString());
    MR_ASSIGN_OR_RETURN(const Picture picture, PictureOf(image, 0, 4));
    if (picture.channels != 1 && picture.channels != 3) {
      return InvalidArgument("image must have 1 or 3 channels, got ", image.shape().ToString());
    }
    options.grayscale = picture.channels == 1;
    if (format_ == "grayscale" && picture.channels != 1) {
      return InvalidArgument("format 'grayscale' expects 1 channel, got ", image.shape().ToString());
    }
    if (format_ == "rgb" && picture.channels != 3) {
      return InvalidArgument("format 'rgb' expects 3 channels, got ", image.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    MR_ASSIGN_OR_RETURN(out->scalar<std::string>(), EncodeJpegPicture(image.data<uint8_t>(), picture, options));
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kMaxXmp = 65000;

  static Status CheckQuality(int quality) {
    if (quality >= 0 && quality <= 100) return absl::OkStatus();
    return InvalidArgument("quality must be in [0,100], got ", quality);
  }

  const bool quality_is_input_;
  std::string format_;
  JpegEncoding options_;
};

class ExtractJpegShapeKernel : public Kernel {
 public:
  explicit ExtractJpegShapeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& contents = ctx.input(0);
    if (contents.rank() != 0) {
      return InvalidArgument("contents must be scalar, got shape ", contents.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const Picture p, JpegPictureSize(contents.scalar<std::string>()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({3})));
    const int64_t dims[] = {p.height, p.width, p.channels};
    for (int i = 0; i < 3; ++i) {
      if (out->dtype() == DType::kInt32) {
        out->data<int32_t>()[i] = static_cast<int32_t>(dims[i]);
      } else {
        out->data<int64_t>()[i] = dims[i];
      }
    }
    return absl::OkStatus();
  }
};

Status EncodedPngShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape images, c.WithRankAtLeast(0, 3));
  if (!images.known_rank()) return UnknownShape(c);
  PartialShape batch = PartialShape::Scalar();
  for (int i = 0; i + 3 < images.rank(); ++i) batch.AddDim(images.dim(i));
  c.set_output(0, batch);
  return absl::OkStatus();
}

Status EncodedJpegShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 3).status());
  return ScalarShape(c);
}

Status JpegShapeShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  c.set_output(0, PartialShape({3}));
  return absl::OkStatus();
}

MILLRACE_OP(EncodePng)
    .Summary("The bytes of a PNG.")
    .Input("image: T")
    .Output("contents: string")
    .Attr("compression: int = -1")
    .Attr("T: {uint8, uint16} = uint8")
    .Shape(EncodedPngShape)
    .NotDifferentiable();
MILLRACE_OP(EncodeJpeg)
    .Summary("The bytes of a JPEG.")
    .Input("image: uint8")
    .Output("contents: string")
    .Attr("format: {'', 'grayscale', 'rgb'} = ''")
    .Attr("quality: int = 95")
    .Attr("progressive: bool = false")
    .Attr("optimize_size: bool = false")
    .Attr("chroma_downsampling: bool = true")
    .Attr("density_unit: {'in', 'cm'} = 'in'")
    .Attr("x_density: int = 300")
    .Attr("y_density: int = 300")
    .Attr("xmp_metadata: string = ''")
    .Shape(EncodedJpegShape)
    .NotDifferentiable();
MILLRACE_OP(EncodeJpegVariableQuality)
    .Summary("The bytes of a JPEG, whose quality is an input.")
    .Input("images: uint8")
    .Input("quality: int32")
    .Output("contents: string")
    .Shape(EncodedJpegShape)
    .NotDifferentiable();
MILLRACE_OP(ExtractJpegShape)
    .Summary("Height, width and channels of a JPEG, from its header.")
    .Input("contents: string")
    .Output("image_shape: output_type")
    .Attr("output_type: {int32, int64} = int32")
    .Shape(JpegShapeShape)
    .NotDifferentiable();
MILLRACE_KERNEL(EncodePng, kCpu, EncodePngKernel);
MILLRACE_KERNEL(EncodeJpeg, kCpu, EncodeJpegKernel);
MILLRACE_KERNEL(EncodeJpegVariableQuality, kCpu, EncodeJpegKernel);
MILLRACE_KERNEL(ExtractJpegShape, kCpu, ExtractJpegShapeKernel);

}  // namespace
}  // namespace millrace
