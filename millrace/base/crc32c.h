// CRC-32C (Castagnoli), as checkpoints, records and event files store it.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace millrace {

// The CRC of what `crc` was computed over followed by `data`; start with 0.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data);
inline uint32_t Crc32c(absl::string_view data) { return ExtendCrc32c(0, data); }

// The CRC of two pieces concatenated, from the CRC of each; `second_size` is the second piece's size in bytes. This
// lets several threads checksum pieces of one file.
uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_size);

// Files store the masked form: the CRC of bytes that contain their own CRC would be degenerate.
inline constexpr uint32_t kCrcMaskDelta = 0xa282ead8;
inline uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + kCrcMaskDelta; }
inline uint32_t UnmaskCrc(uint32_t masked) {
  const uint32_t rotated = masked - kCrcMaskDelta;
  return (rotated >> 17) | (rotated << 15);
}

}  // namespace millrace
