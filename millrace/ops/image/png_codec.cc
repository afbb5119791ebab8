#include <png.h>

#include <csetjmp>
#include <cstring>

#include "millrace/ops/image/codec.h"

namespace millrace {
namespace {

struct PngSource {
  absl::string_view left;
};

void ReadPngBytes(png_structp png, png_bytep to, png_size_t n) {
  auto* source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (source->left.size() < n) png_error(png, "more bytes read than decoded");
  std::memcpy(to, source->left.data(), n);
  source->left.remove_prefix(n);
}

void AppendPngBytes(png_structp png, png_bytep from, png_size_t n) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(from), n);
}

void FailPng(png_structp png, png_const_charp why) {
  *static_cast<std::string*>(png_get_error_ptr(png)) = why;
  std::longjmp(png_jmpbuf(png), 1);
}

void IgnorePngWarning(png_structp, png_const_charp) {}

// Asks libpng for `channels` (0: those of the file) of 8 or 16 bits, whatever the file has; returns how many.
int ConvertPng(png_structp png, png_infop info, int channels, bool wide) {
  const png_byte color = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);
  const bool has_transparency = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  const bool has_alpha = (color & PNG_COLOR_MASK_ALPHA) != 0;
  const bool is_gray = (color & PNG_COLOR_MASK_COLOR) == 0;
  if (channels == 0) {
    channels = color == PNG_COLOR_TYPE_PALETTE ? (has_transparency ? 4 : 3) : png_get_channels(png, info);
  }
  if (channels % 2 == 0) {
    if (has_transparency) {
      png_set_tRNS_to_alpha(png);
    } else if (!has_alpha) {
      png_set_add_alpha(png, (1 << depth) - 1, PNG_FILLER_AFTER);
    }
  } else if (has_alpha || has_transparency) {
    png_set_strip_alpha(png);
  }
  if (depth > 8 && !wide) png_set_strip_16(png);
  png_set_packing(png);
  if (wide) png_set_swap(png);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (is_gray && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (channels < 3) {
    if (!is_gray) png_set_rgb_to_gray(png, 1, 0.299, 0.587);
  } else if (is_gray) {
    png_set_gray_to_rgb(png);
  }
  return channels;
}

// Widens rows of 8-bit elements at the front of each row to 16 bits, in place.
void WidenRows(uint16_t* pixels, int64_t rows, int64_t row) {
  for (int64_t r = 0; r < rows; ++r) {
    uint16_t* const out = pixels + r * row;
    const auto* const in = reinterpret_cast<const uint8_t*>(out);
    for (int64_t i = row - 1; i >= 0; --i) {
      const uint8_t value = in[i];
      out[i] = static_cast<uint16_t>((value << 8) | value);
    }
  }
}

class PngReading {
 public:
  ~PngReading() { png_destroy_read_struct(&png_, &info_, nullptr); }

  Status Run(absl::string_view bytes, int channels, bool wide, PictureMemory memory) {
    source_.left = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &error_, FailPng, IgnorePngWarning);
    if (png_ == nullptr) return ResourceExhausted("no memory to decode a PNG");
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return ResourceExhausted("no memory to decode a PNG");
    if (!ReadHeader(channels, wide)) {
      return InvalidArgument("Invalid PNG. Failed to initialize decoder: ", error_);
    }
    MR_RETURN_IF_ERROR(CheckPictureSize(1, picture_.height, picture_.width, picture_.channels));
    MR_ASSIGN_OR_RETURN(void* const pixels, memory(picture_));
    const size_t element = wide ? 2 : 1;
    const size_t row = static_cast<size_t>(picture_.width * picture_.channels) * element;
    rows_.resize(static_cast<size_t>(picture_.height));
    for (size_t r = 0; r < rows_.size(); ++r) rows_[r] = static_cast<png_bytep>(pixels) + r * row;
    if (!ReadRows()) return InvalidArgument("Invalid PNG data, size ", bytes.size(), ": ", error_);
    if (wide && depth_ <= 8) {
      WidenRows(static_cast<uint16_t*>(pixels), picture_.height, picture_.width * picture_.channels);
    }
    return absl::OkStatus();
  }

 private:
  // libpng reports errors with longjmp: no objects with destructors are made in these two.
  bool ReadHeader(int channels, bool wide) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_read_fn(png_, &source_, ReadPngBytes);
    png_read_info(png_, info_);
    picture_.width = png_get_image_width(png_, info_);
    picture_.height = png_get_image_height(png_, info_);
    depth_ = png_get_bit_depth(png_, info_);
    picture_.channels = ConvertPng(png_, info_, channels, wide);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool ReadRows() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows_.data());
    return true;
  }

  PngSource source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::string error_;
  Picture picture_;
  int depth_ = 8;
  std::vector<png_bytep> rows_;
};

class PngWriting {
 public:
  ~PngWriting() { png_destroy_write_struct(&png_, &info_); }

  StatusOr<std::string> Run(const void* pixels, const Picture& picture, bool wide, int compression) {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, &error_, FailPng, IgnorePngWarning);
    if (png_ == nullptr) return ResourceExhausted("no memory to encode a PNG");
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return ResourceExhausted("no memory to encode a PNG");
    if (!Write(pixels, picture, wide, compression)) return Internal("PNG encoding failed: ", error_);
    return std::move(bytes_);
  }

 private:
  bool Write(const void* pixels, const Picture& picture, bool wide, int compression) {
    static constexpr int kColors[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                      PNG_COLOR_TYPE_RGB_ALPHA};
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_write_fn(png_, &bytes_, AppendPngBytes, nullptr);
    png_set_compression_level(png_, compression);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(picture.width), static_cast<png_uint_32>(picture.height),
                 wide ? 16 : 8, kColors[picture.channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    if (wide) png_set_swap(png_);
    const int64_t row = picture.width * picture.channels * (wide ? 2 : 1);
    for (int64_t r = 0; r < picture.height; ++r) {
      png_write_row(png_, static_cast<png_const_bytep>(pixels) + r * row);
    }
    png_write_end(png_, nullptr);
    return true;
  }

  std::string error_;
  std::string bytes_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

Status DecodePngPicture(absl::string_view bytes, int channels, bool wide, PictureMemory memory) {
  return PngReading().Run(bytes, channels, wide, memory);
}

StatusOr<std::string> EncodePngPicture(const void* pixels, const Picture& picture, bool wide, int compression) {
  return PngWriting().Run(pixels, picture, wide, compression);
}

}  // namespace millrace
