#include <cstring>

#include "millrace/ops/image/codec.h"

namespace millrace {
namespace {

template <typename T>
T LittleEndian(absl::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

Status CheckPictureSize(int64_t frames, int64_t height, int64_t width, int64_t channels) {
  constexpr int64_t kMaxSide = int64_t{1} << 27, kMaxElements = int64_t{1} << 31;
  if (height <= 0 || width <= 0 || frames <= 0 || channels <= 0) {
    return InvalidArgument("the picture is empty: ", frames, " frames of ", height, " by ", width);
  }
  if (height > kMaxSide || width > kMaxSide || height * width > kMaxElements / channels / frames) {
    return InvalidArgument("the picture is too large: ", frames, " frames of ", height, " by ", width, " with ",
                           channels, " channels");
  }
  return absl::OkStatus();
}

Status DecodeBmpPicture(absl::string_view bytes, int channels, PictureMemory memory) {
  constexpr size_t kHeader = 32;
  if (bytes.size() < kHeader) {
    return InvalidArgument("Incomplete bmp content, requires at least ", kHeader, " bytes, got ", bytes.size());
  }
  const int64_t start = LittleEndian<int32_t>(bytes, 10), width = LittleEndian<int32_t>(bytes, 18);
  const int64_t signed_height = LittleEndian<int32_t>(bytes, 22), bits = LittleEndian<int16_t>(bytes, 28);
  if (channels != 0 && channels != bits / 8) {
    return InvalidArgument("channels attribute ", channels, " does not match bits per pixel from file ", bits / 8);
  }
  const int64_t each = bits / 8, height = signed_height < 0 ? -signed_height : signed_height;
  if (each != 1 && each != 3 && each != 4) {
    return InvalidArgument("Number of channels inherent in the image must be 1, 3 or 4, was ", each);
  }
  MR_RETURN_IF_ERROR(CheckPictureSize(1, height, width, each));
  const int64_t row = (width * each + 3) / 4 * 4;  // rows are padded to four bytes
  if (start < 0 || start > static_cast<int64_t>(bytes.size()) ||
      static_cast<int64_t>(bytes.size()) - start < row * (height - 1) + width * each) {
    return InvalidArgument("Incomplete bmp content, requires at least ", start + row * (height - 1) + width * each,
                           " bytes, got ", bytes.size());
  }
  MR_ASSIGN_OR_RETURN(void* const pixels, memory(Picture{1, height, width, each}));
  auto* out = static_cast<uint8_t*>(pixels);
  for (int64_t y = 0; y < height; ++y) {
    const int64_t from = signed_height < 0 ? y : height - 1 - y;  // usually from bottom to top
    const auto* in = reinterpret_cast<const uint8_t*>(bytes.data()) + start + from * row;
    for (int64_t x = 0; x < width; ++x, in += each, out += each) {
      if (each == 1) {
        out[0] = in[0];
        continue;
      }
      out[0] = in[2], out[1] = in[1], out[2] = in[0];  // stored as BGR
      if (each == 4) out[3] = in[3];
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
