// Constants of the table format.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::table_format {

// A block is finished when it reaches this size.
inline constexpr size_t kBlockSize = size_t{256} << 10;
// Every block is followed by a byte for its compression and a checksum of both.
inline constexpr char kNotCompressed = 0;
inline constexpr char kSnappy = 1;
inline constexpr size_t kTrailerSize = 5;
// The footer: the locations of two blocks, zero padding and the magic number.
inline constexpr size_t kFooterSize = 48;
inline constexpr uint64_t kMagic = 0xdb4775248b80fb57;

}  // namespace millrace::table_format
