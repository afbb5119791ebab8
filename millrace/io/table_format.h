// Numbers of the table format that its reader and writer share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::table_format {

// A block is closed when it has grown to this.
inline constexpr size_t kBlockSize = size_t{256} << 10;
// After every block: a byte that says how it is compressed, and a checksum of both.
inline constexpr char kNotCompressed = 0;
inline constexpr char kSnappy = 1;
inline constexpr size_t kTrailerSize = 5;
// At the end: the places of two blocks, zeros, and the magic number.
inline constexpr size_t kFooterSize = 48;
inline constexpr uint64_t kMagic = 0xdb4775248b80fb57;

}  // namespace millrace::table_format
