// Encoded pictures: PNG, JPEG, GIF and BMP. Each codec is one file; malformed bytes give INVALID_ARGUMENT.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "millrace/base/status.h"

namespace millrace {

// Decoded pixels: frames x height x width x channels, 8 or 16 bits each.
struct Picture {
  int64_t frames = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t size() const { return frames * height * width * channels; }
};

// Where the pixels go: called once, when the size is known, for memory of size() elements of 1 or 2 bytes.
using PictureMemory = absl::FunctionRef<StatusOr<void*>(const Picture& picture)>;

// INVALID_ARGUMENT if a picture of that size cannot be decoded here.
Status CheckPictureSize(int64_t frames, int64_t height, int64_t width, int64_t channels);

// `channels` 0 means those of the file. With `wide`, elements have 16 bits.
Status DecodePngPicture(absl::string_view bytes, int channels, bool wide, PictureMemory memory);
// `pixels` are height x width x channels, of 16 bits if `wide`. `compression` is zlib's level, -1 its default.
StatusOr<std::string> EncodePngPicture(const void* pixels, const Picture& picture, bool wide, int compression);

struct JpegDecoding {
  int channels = 0;  // 0: those of the file
  int ratio = 1;     // 1, 2, 4 or 8: a picture smaller by that factor
  bool fancy_upscaling = true;
  bool try_recover_truncated = false;
  float acceptable_fraction = 1.0f;  // of the rows, if truncated
  bool fast_dct = true;
};
Status DecodeJpegPicture(absl::string_view bytes, const JpegDecoding& options, PictureMemory memory);
// Reads the header only.
StatusOr<Picture> JpegPictureSize(absl::string_view bytes);

struct JpegEncoding {
  bool grayscale = false;
  int quality = 95;
  bool progressive = false;
  bool optimize_size = false;
  bool chroma_downsampling = true;
  bool per_inch = true;  // density per inch, or per cm
  int x_density = 300;
  int y_density = 300;
  std::string xmp_metadata;
};
StatusOr<std::string> EncodeJpegPicture(const uint8_t* pixels, const Picture& picture, const JpegEncoding& options);

// All frames as RGB, each drawn over the one before; only the first unless `all_frames`.
Status DecodeGifPicture(absl::string_view bytes, bool all_frames, PictureMemory memory);

// `channels` 0 means those of the file, which must have those otherwise.
Status DecodeBmpPicture(absl::string_view bytes, int channels, PictureMemory memory);

}  // namespace millrace
