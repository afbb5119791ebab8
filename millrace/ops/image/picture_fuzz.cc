// Fuzzes the decoders of pictures.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "millrace/ops/image/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::vector<uint16_t> pixels;
  const auto memory = [&](const Picture& picture) -> StatusOr<void*> {
    if (picture.size() > (1 << 24)) return InvalidArgument("too large to fuzz");
    pixels.assign(static_cast<size_t>(picture.size()), 0);
    return pixels.data();
  };
  DecodePngPicture(bytes, 0, false, memory).IgnoreError();
  DecodePngPicture(bytes, 4, true, memory).IgnoreError();
  JpegDecoding recover;
  recover.try_recover_truncated = true;
  recover.acceptable_fraction = 0;
  DecodeJpegPicture(bytes, recover, memory).IgnoreError();
  DecodeGifPicture(bytes, true, memory).IgnoreError();
  DecodeBmpPicture(bytes, 0, memory).IgnoreError();
  return 0;
}
