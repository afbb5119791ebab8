#include <jpeglib.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "millrace/ops/image/codec.h"

namespace millrace {
namespace {

// libjpeg reports errors by calling error_exit, which must not return.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";

  JpegErrors() {
    jpeg_std_error(&base);
    base.error_exit = [](j_common_ptr info) {
      auto* errors = reinterpret_cast<JpegErrors*>(info->err);
      info->err->format_message(info, errors->message);
      std::longjmp(errors->jump, 1);
    };
    base.output_message = [](j_common_ptr) {};
  }
};

struct JpegSource {
  jpeg_source_mgr base;
  bool ended = false;  // more bytes were asked for than there are

  explicit JpegSource(absl::string_view bytes) {
    base.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    base.bytes_in_buffer = bytes.size();
    base.init_source = [](j_decompress_ptr) {};
    base.term_source = [](j_decompress_ptr) {};
    base.resync_to_restart = jpeg_resync_to_restart;
    base.fill_input_buffer = [](j_decompress_ptr info) -> boolean {
      static const JOCTET kEnd[2] = {0xFF, JPEG_EOI};
      reinterpret_cast<JpegSource*>(info->src)->ended = true;
      info->src->next_input_byte = kEnd;
      info->src->bytes_in_buffer = 2;
      return TRUE;
    };
    base.skip_input_data = [](j_decompress_ptr info, long n) {  // NOLINT: libjpeg's type
      if (n <= 0) return;
      if (static_cast<size_t>(n) > info->src->bytes_in_buffer) {
        info->src->fill_input_buffer(info);
        return;
      }
      info->src->next_input_byte += n;
      info->src->bytes_in_buffer -= static_cast<size_t>(n);
    };
  }
};

// From inverted CMYK, as Adobe writes it, or from plain CMYK.
void CmykToRgb(const uint8_t* cmyk, bool inverted, int64_t width, int channels, uint8_t* out) {
  for (int64_t i = 0; i < width; ++i, cmyk += 4, out += channels) {
    const int c = cmyk[0], m = cmyk[1], y = cmyk[2], k = cmyk[3];
    const auto ink = [&](int v) { return static_cast<uint8_t>(inverted ? k * v / 255 : (255 - k) * (255 - v) / 255); };
    const uint8_t r = ink(c), g = ink(m), b = ink(y);
    if (channels == 3) {
      out[0] = r, out[1] = g, out[2] = b;
    } else {
      // With the weights by which libjpeg makes grey of RGB.
      out[0] = static_cast<uint8_t>((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
    }
  }
}

class JpegReading {
 public:
  explicit JpegReading(absl::string_view bytes) : bytes_(bytes), source_(bytes) {
    info_.err = &errors_.base;
    jpeg_create_decompress(&info_);
    info_.src = &source_.base;
  }
  ~JpegReading() { jpeg_destroy_decompress(&info_); }

  StatusOr<Picture> Size() {
    if (!ReadHeader()) return Invalid();
    return Picture{1, info_.image_height, info_.image_width, info_.num_components};
  }

  Status Run(const JpegDecoding& options, PictureMemory memory) {
    if (!ReadHeader() || !Start(options)) return Invalid();
    MR_RETURN_IF_ERROR(CheckPictureSize(1, info_.output_height, info_.output_width, picture_.channels));
    MR_ASSIGN_OR_RETURN(void* const pixels, memory(picture_));
    out_ = static_cast<uint8_t*>(pixels);
    cmyk_.resize(is_cmyk_ ? static_cast<size_t>(picture_.width) * 4 : 0);
    const bool whole = ReadRows() && !source_.ended;
    if (whole) return absl::OkStatus();
    const double fraction = static_cast<double>(rows_read_) / static_cast<double>(picture_.height);
    if (!options.try_recover_truncated || fraction < options.acceptable_fraction) return Invalid();
    const int64_t row = picture_.width * picture_.channels;
    std::memset(out_ + rows_read_ * row, 0, static_cast<size_t>((picture_.height - rows_read_) * row));
    return absl::OkStatus();
  }

 private:
  Status Invalid() const {
    return InvalidArgument("Invalid JPEG data or crop window, data size ", bytes_.size(),
                           errors_.message[0] != 0 ? ": " : "", errors_.message,
                           source_.ended ? " (the data is truncated)" : "");
  }

  // No objects with destructors are made in these: errors leave them by longjmp.
  bool ReadHeader() {
    if (setjmp(errors_.jump)) return false;
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool Start(const JpegDecoding& options) {
    if (setjmp(errors_.jump)) return false;
    picture_.channels = options.channels != 0 ? options.channels : (info_.num_components == 1 ? 1 : 3);
    is_cmyk_ = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = is_cmyk_ ? JCS_CMYK : picture_.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    info_.do_fancy_upsampling = options.fancy_upscaling ? TRUE : FALSE;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(options.ratio);
    info_.dct_method = options.fast_dct ? JDCT_IFAST : JDCT_DEFAULT;
    jpeg_start_decompress(&info_);
    picture_.height = info_.output_height;
    picture_.width = info_.output_width;
    return true;
  }
  bool ReadRows() {
    if (setjmp(errors_.jump)) return false;
    const int64_t row = picture_.width * picture_.channels;
    while (info_.output_scanline < info_.output_height) {
      uint8_t* const to = out_ + static_cast<int64_t>(info_.output_scanline) * row;
      JSAMPROW line = is_cmyk_ ? cmyk_.data() : to;
      const int64_t at = info_.output_scanline;
      if (jpeg_read_scanlines(&info_, &line, 1) != 1) return false;
      // What libjpeg makes up after the end of the data does not count.
      if (source_.ended) return false;
      rows_read_ = at + 1;
      if (is_cmyk_) {
        CmykToRgb(cmyk_.data(), info_.saw_Adobe_marker, picture_.width, static_cast<int>(picture_.channels), to);
      }
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  const absl::string_view bytes_;
  JpegErrors errors_;
  JpegSource source_;
  jpeg_decompress_struct info_;
  Picture picture_;
  bool is_cmyk_ = false;
  int64_t rows_read_ = 0;
  uint8_t* out_ = nullptr;
  std::vector<uint8_t> cmyk_;
};

class JpegWriting {
 public:
  JpegWriting() {
    info_.err = &errors_.base;
    jpeg_create_compress(&info_);
  }
  ~JpegWriting() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);
  }

  StatusOr<std::string> Run(const uint8_t* pixels, const Picture& picture, const JpegEncoding& options) {
    if (!Write(pixels, picture, options)) return Internal("JPEG encoding failed: ", errors_.message);
    return std::string(reinterpret_cast<const char*>(bytes_), size_);
  }

 private:
  bool Write(const uint8_t* pixels, const Picture& picture, const JpegEncoding& options) {
    if (setjmp(errors_.jump)) return false;
    jpeg_mem_dest(&info_, &bytes_, &size_);
    info_.image_width = static_cast<JDIMENSION>(picture.width);
    info_.image_height = static_cast<JDIMENSION>(picture.height);
    info_.input_components = static_cast<int>(picture.channels);
    info_.in_color_space = options.grayscale ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    if (options.optimize_size) info_.optimize_coding = TRUE;
    info_.density_unit = options.per_inch ? 1 : 2;
    info_.X_density = static_cast<UINT16>(options.x_density);
    info_.Y_density = static_cast<UINT16>(options.y_density);
    jpeg_set_quality(&info_, options.quality, TRUE);
    if (options.progressive) jpeg_simple_progression(&info_);
    if (!options.chroma_downsampling) {
      for (int i = 0; i < info_.num_components; ++i) {
        info_.comp_info[i].h_samp_factor = 1;
        info_.comp_info[i].v_samp_factor = 1;
      }
    }
    jpeg_start_compress(&info_, TRUE);
    WriteXmp(options.xmp_metadata);
    while (info_.next_scanline < info_.image_height) {
      auto* row = const_cast<JSAMPROW>(pixels + static_cast<int64_t>(info_.next_scanline) * picture.width *
                                                    picture.channels);  // libjpeg does not write there
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  void WriteXmp(const std::string& xmp) {
    static constexpr char kNamespace[] = "http://ns.adobe.com/xap/1.0/";  // with its end
    if (xmp.empty()) return;
    jpeg_write_m_header(&info_, JPEG_APP0 + 1, static_cast<unsigned>(sizeof(kNamespace) + xmp.size()));
    for (const char c : absl::string_view(kNamespace, sizeof(kNamespace))) jpeg_write_m_byte(&info_, c);
    for (const char c : xmp) jpeg_write_m_byte(&info_, static_cast<unsigned char>(c));
  }

  JpegErrors errors_;
  jpeg_compress_struct info_;
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;  // NOLINT: libjpeg's type
};

}  // namespace

Status DecodeJpegPicture(absl::string_view bytes, const JpegDecoding& options, PictureMemory memory) {
  return JpegReading(bytes).Run(options, memory);
}

StatusOr<Picture> JpegPictureSize(absl::string_view bytes) { return JpegReading(bytes).Size(); }

StatusOr<std::string> EncodeJpegPicture(const uint8_t* pixels, const Picture& picture, const JpegEncoding& options) {
  return JpegWriting().Run(pixels, picture, options);
}

}  // namespace millrace
