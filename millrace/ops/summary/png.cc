#include "millrace/ops/summary/png.h"

#include <png.h>
#include <zlib.h>

#include <vector>

namespace millrace {
namespace {

// libpng reports errors by longjmp: no object with a destructor may be alive in between.
void Fail(png_structp png, png_const_charp message) {
  *static_cast<const char**>(png_get_error_ptr(png)) = "libpng failed";
  longjmp(png_jmpbuf(png), 1);
}
void Ignore(png_structp, png_const_charp) {}
void Append(png_structp png, png_bytep data, png_size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(data), size);
}
void Flush(png_structp) {}

int ColorType(int channels) {
  switch (channels) {
    case 1:
      return PNG_COLOR_TYPE_GRAY;
    case 3:
      return PNG_COLOR_TYPE_RGB;
    default:
      return PNG_COLOR_TYPE_RGB_ALPHA;
  }
}

}  // namespace

StatusOr<std::string> EncodePng(absl::Span<const uint8_t> pixels, int64_t height, int64_t width, int channels) {
  constexpr int64_t kMaxSide = 1 << 27;
  if (height < 1 || width < 1 || height >= kMaxSide || width >= kMaxSide) {
    return InvalidArgument("a PNG cannot have ", height, " x ", width, " pixels");
  }
  std::string file;
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (int64_t y = 0; y < height; ++y) rows[y] = const_cast<png_bytep>(pixels.data() + y * width * channels);
  const char* error = nullptr;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &error, Fail, Ignore);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  if (info == nullptr) {
    png_destroy_write_struct(&png, nullptr);
    return ResourceExhausted("no memory for a PNG");
  }
  if (setjmp(png_jmpbuf(png)) == 0) {
    png_set_write_fn(png, &file, Append, Flush);
    png_set_compression_level(png, Z_DEFAULT_COMPRESSION);
    png_set_compression_mem_level(png, MAX_MEM_LEVEL);
    png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), 8, ColorType(channels),
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    png_write_image(png, rows.data());
    png_write_end(png, nullptr);
  }
  png_destroy_write_struct(&png, &info);
  if (error != nullptr) return Internal(error);
  return file;
}

}  // namespace millrace
