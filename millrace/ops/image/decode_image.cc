// DecodePng, DecodeJpeg, DecodeGif, DecodeBmp, DecodeImage: pixels from the bytes of a picture. As in TensorFlow, each
// of them but DecodeBmp takes every format that it can give the result of.
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/codec.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

enum class PictureFormat { kPng, kJpeg, kGif, kBmp, kUnknown };

PictureFormat FormatOf(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\xff\xd8\xff")) return PictureFormat::kJpeg;
  if (absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n")) return PictureFormat::kPng;
  if (absl::StartsWith(bytes, "GIF8")) return PictureFormat::kGif;
  if (absl::StartsWith(bytes, "BM")) return PictureFormat::kBmp;
  return PictureFormat::kUnknown;
}

// The window of DecodeAndCropJpeg: top, left, height, width.
struct CropWindow {
  int64_t y = 0, x = 0, height = 0, width = 0;
};

class DecodePictureKernel : public Kernel {
 public:
  explicit DecodePictureKernel(KernelInit& init) : op_(init.node().type()) {
    type_ = init.node().output_type(0);
    if (op_ == "DecodeGif") {
      channels_ = 3;
      return;
    }
    init.Attr("channels", &channels_);
    const bool is_bmp = op_ == "DecodeBmp", is_jpeg = op_ == "DecodeJpeg" || op_ == "DecodeAndCropJpeg";
    if (is_bmp ? channels_ != 0 && channels_ != 3 && channels_ != 4
               : channels_ < 0 || channels_ == 2 || channels_ > 4) {
      init.Fail(InvalidArgument("`channels` must be 0, ", is_bmp ? "" : "1, ", "3 or 4, but got ", channels_));
    }
    if (op_ == "DecodeImage") init.Attr("expand_animations", &all_frames_);
    if (is_jpeg) ReadJpegOptions(init);
  }
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    const Tensor& contents = ctx.input(0);
    if (contents.rank() != 0) {
      return InvalidArgument("`contents` must be scalar but got shape", contents.shape().ToString());
    }
    const std::string& bytes = contents.scalar<std::string>();
    if (bytes.empty()) return InvalidArgument("Input is empty.");
    const PictureFormat format = FormatOf(bytes);
    MR_RETURN_IF_ERROR(CheckFormat(format));
    switch (format) {
      case PictureFormat::kJpeg:
        return Jpeg(ctx, bytes);
      case PictureFormat::kPng:
        return Png(ctx, bytes);
      case PictureFormat::kGif:
        return Gif(ctx, bytes);
      case PictureFormat::kBmp:
        return Bmp(ctx, bytes);
      case PictureFormat::kUnknown:
        return InvalidArgument("Unknown image file format. One of JPEG, PNG, GIF, BMP required.");
    }
    return absl::OkStatus();
  }

 private:
  void ReadJpegOptions(KernelInit& init) {
    std::string dct;
    init.Attr("ratio", &jpeg_.ratio);
    init.Attr("fancy_upscaling", &jpeg_.fancy_upscaling);
    init.Attr("try_recover_truncated", &jpeg_.try_recover_truncated);
    init.Attr("acceptable_fraction", &jpeg_.acceptable_fraction);
    init.Attr("dct_method", &dct);
    if (jpeg_.ratio != 1 && jpeg_.ratio != 2 && jpeg_.ratio != 4 && jpeg_.ratio != 8) {
      init.Fail(InvalidArgument("ratio must be 1, 2, 4, or 8, got ", jpeg_.ratio));
    }
    if (!dct.empty() && dct != "INTEGER_FAST" && dct != "INTEGER_ACCURATE") {
      init.Fail(InvalidArgument("dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}, got ", dct));
    }
    jpeg_.fast_dct = dct != "INTEGER_ACCURATE";  // fast is TensorFlow's default
  }

  // Formats that this op does not take.
  Status CheckFormat(PictureFormat format) const {
    static constexpr const char* kNames[] = {"PNG", "JPEG", "GIF", "BMP"};
    if (format == PictureFormat::kUnknown || op_ == "DecodeImage") return absl::OkStatus();
    const char* const name = kNames[static_cast<int>(format)];
    if (op_ == "DecodeAndCropJpeg" && format != PictureFormat::kJpeg) {
      return InvalidArgument("DecodeAndCropJpeg operation can run on JPEG only, but detected ", name, ".");
    }
    if (op_ == "DecodeBmp" && format != PictureFormat::kBmp) {
      return InvalidArgument("Trying to decode ", name, " format using DecodeBmp op. Use `decode_",
                             absl::AsciiStrToLower(name), "` or `decode_image` instead.");
    }
    if (op_ != "DecodeBmp" && format == PictureFormat::kBmp) {
      return InvalidArgument(
          "Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` instead. Op used: ", op_);
    }
    return absl::OkStatus();
  }

  Status Jpeg(KernelContext& ctx, const std::string& bytes) const {
    if (channels_ == 4) return InvalidArgument("channels must be 0, 1, or 3 for JPEG, but got 4");
    JpegDecoding options = jpeg_;
    options.channels = channels_;
    if (op_ == "DecodeAndCropJpeg") return CroppedJpeg(ctx, bytes, options);
    return Convert8(
        ctx, [&](PictureMemory memory) { return DecodeJpegPicture(bytes, options, memory); }, false);
  }

  Status CroppedJpeg(KernelContext& ctx, const std::string& bytes, const JpegDecoding& options) const {
    const Tensor& window = ctx.input(1);
    if (window.rank() != 1 || window.dim(0) != 4) {
      return InvalidArgument("crop_window must be a vector of 4 elements, but has shape ", window.shape().ToString());
    }
    const int32_t* w = window.data<int32_t>();
    const CropWindow crop{w[0], w[1], w[2], w[3]};
    std::vector<uint8_t> whole;
    Picture size;
    MR_RETURN_IF_ERROR(DecodeJpegPicture(bytes, options, [&](const Picture& picture) -> StatusOr<void*> {
      size = picture;
      if (crop.height <= 0 || crop.width <= 0 || crop.y < 0 || crop.x < 0 || crop.y + crop.height > size.height ||
          crop.x + crop.width > size.width) {
        return InvalidArgument("Invalid JPEG data or crop window, data size ", bytes.size(), ": the window of ",
                               crop.height, " by ", crop.width, " at ", crop.y, ",", crop.x,
                               " is not within the picture of ", size.height, " by ", size.width);
      }
      whole.resize(static_cast<size_t>(picture.size()));
      return whole.data();
    }));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({crop.height, crop.width, size.channels})));
    const int64_t row = crop.width * size.channels;
    for (int64_t r = 0; r < crop.height; ++r) {
      std::memcpy(out->data<uint8_t>() + r * row, whole.data() + ((crop.y + r) * size.width + crop.x) * size.channels,
                  static_cast<size_t>(row));
    }
    return absl::OkStatus();
  }

  // A PNG may have 16 bits, of which floats are made too.
  Status Png(KernelContext& ctx, const std::string& bytes) const {
    if (type_ != DType::kFloat) {
      const auto memory = [&](const Picture& picture) -> StatusOr<void*> {
        MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, ShapeOf(picture, false)));
        return out->raw_data();
      };
      return DecodePngPicture(bytes, channels_, type_ == DType::kUInt16, memory);
    }
    std::vector<uint16_t> wide;
    Tensor* out = nullptr;
    MR_RETURN_IF_ERROR(DecodePngPicture(bytes, channels_, true, [&](const Picture& picture) -> StatusOr<void*> {
      MR_ASSIGN_OR_RETURN(out, ctx.AllocateOutput(0, ShapeOf(picture, false)));
      wide.resize(static_cast<size_t>(picture.size()));
      return wide.data();
    }));
    for (size_t i = 0; i < wide.size(); ++i) out->data<float>()[i] = static_cast<float>(wide[i]) / 65535.0f;
    return absl::OkStatus();
  }

  Status Gif(KernelContext& ctx, const std::string& bytes) const {
    if (channels_ != 0 && channels_ != 3)
      return InvalidArgument("channels must be 0 or 3 for GIF, but got ", channels_);
    const bool with_frames = op_ == "DecodeGif" || (op_ == "DecodeImage" && all_frames_);
    const auto decode = [&](PictureMemory memory) {
      if (with_frames || op_ == "DecodeImage") return DecodeGifPicture(bytes, with_frames, memory);
      return DecodeGifPicture(bytes, true, [&](const Picture& picture) -> StatusOr<void*> {
        if (picture.frames == 1) return memory(picture);
        return InvalidArgument("Got ", picture.frames,
                               " frames, but animated gifs can only be decoded by tf.io.decode_gif or "
                               "tf.io.decode_image");
      });
    };
    return Convert8(ctx, decode, with_frames);
  }

  Status Bmp(KernelContext& ctx, const std::string& bytes) const {
    return Convert8(
        ctx, [&](PictureMemory memory) { return DecodeBmpPicture(bytes, channels_, memory); }, false);
  }

  static Shape ShapeOf(const Picture& p, bool with_frames) {
    if (with_frames) return Shape({p.frames, p.height, p.width, p.channels});
    return Shape({p.height, p.width, p.channels});
  }

  // `decode` gives 8 bits; the output may be wider.
  Status Convert8(KernelContext& ctx, absl::FunctionRef<Status(PictureMemory)> decode, bool with_frames) const {
    std::vector<uint8_t> narrow;
    Tensor* out = nullptr;
    MR_RETURN_IF_ERROR(decode([&](const Picture& picture) -> StatusOr<void*> {
      MR_ASSIGN_OR_RETURN(out, ctx.AllocateOutput(0, ShapeOf(picture, with_frames)));
      if (type_ == DType::kUInt8) return out->raw_data();
      narrow.resize(static_cast<size_t>(picture.size()));
      return narrow.data();
    }));
    for (size_t i = 0; i < narrow.size(); ++i) {
      if (type_ == DType::kUInt16) {
        out->data<uint16_t>()[i] = static_cast<uint16_t>(narrow[i] * 256);
      } else {
        out->data<float>()[i] = static_cast<float>(narrow[i]) / 255.0f;
      }
    }
    return absl::OkStatus();
  }

  const std::string op_;
  DType type_ = DType::kUInt8;
  int channels_ = 0;
  bool all_frames_ = true;
  JpegDecoding jpeg_;
};

Status DecodedShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  PartialShape shape({-1, -1, -1});
  if (c.node().FindAttr("channels") != nullptr) {
    MR_ASSIGN_OR_RETURN(const int64_t channels, c.Attr<int64_t>("channels"));
    if (channels < 0) return InvalidArgument("channels must be non-negative, got ", channels);
    if (channels > 0) shape.set_dim(2, channels);
  }
  if (c.node().is_type("DecodeAndCropJpeg")) {
    std::vector<int64_t> window;
    if (c.ConstantInts(1, &window) && window.size() == 4 && window[2] >= 0 && window[3] >= 0) {
      shape.set_dim(0, window[2]);
      shape.set_dim(1, window[3]);
    }
  }
  c.set_output(0, shape);
  return absl::OkStatus();
}

Status DecodedGifShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  c.set_output(0, PartialShape({-1, -1, -1, 3}));
  return absl::OkStatus();
}

MILLRACE_OP(DecodePng)
    .Summary("The pixels of a PNG.")
    .Input("contents: string")
    .Output("image: dtype")
    .Attr("channels: int = 0")
    .Attr("dtype: {uint8, uint16} = uint8")
    .Shape(DecodedShape)
    .NotDifferentiable();
MILLRACE_OP(DecodeJpeg)
    .Summary("The pixels of a JPEG.")
    .Input("contents: string")
    .Output("image: uint8")
    .Attr("channels: int = 0")
    .Attr("ratio: int = 1")
    .Attr("fancy_upscaling: bool = true")
    .Attr("try_recover_truncated: bool = false")
    .Attr("acceptable_fraction: float = 1.0")
    .Attr("dct_method: string = ''")
    .Shape(DecodedShape)
    .NotDifferentiable();
MILLRACE_OP(DecodeAndCropJpeg)
    .Summary("The pixels of a part of a JPEG.")
    .Input("contents: string")
    .Input("crop_window: int32")
    .Output("image: uint8")
    .Attr("channels: int = 0")
    .Attr("ratio: int = 1")
    .Attr("fancy_upscaling: bool = true")
    .Attr("try_recover_truncated: bool = false")
    .Attr("acceptable_fraction: float = 1.0")
    .Attr("dct_method: string = ''")
    .Shape(DecodedShape)
    .NotDifferentiable();
MILLRACE_OP(DecodeGif)
    .Summary("The frames of a GIF.")
    .Input("contents: string")
    .Output("image: uint8")
    .Shape(DecodedGifShape)
    .NotDifferentiable();
MILLRACE_OP(DecodeBmp)
    .Summary("The pixels of a BMP.")
    .Input("contents: string")
    .Output("image: uint8")
    .Attr("channels: int = 0")
    .Shape(DecodedShape)
    .NotDifferentiable();
MILLRACE_OP(DecodeImage)
    .Summary("The pixels of a PNG, JPEG, GIF or BMP.")
    .Input("contents: string")
    .Output("image: dtype")
    .Attr("channels: int = 0")
    .Attr("dtype: {uint8, uint16, float} = uint8")
    .Attr("expand_animations: bool = true")
    .Shape(UnknownShape)
    .NotDifferentiable();
MILLRACE_KERNEL(DecodePng, kCpu, DecodePictureKernel);
MILLRACE_KERNEL(DecodeJpeg, kCpu, DecodePictureKernel);
MILLRACE_KERNEL(DecodeAndCropJpeg, kCpu, DecodePictureKernel);
MILLRACE_KERNEL(DecodeGif, kCpu, DecodePictureKernel);
MILLRACE_KERNEL(DecodeBmp, kCpu, DecodePictureKernel);
MILLRACE_KERNEL(DecodeImage, kCpu, DecodePictureKernel);

}  // namespace
}  // namespace millrace
