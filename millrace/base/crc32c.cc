#include "millrace/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>

namespace millrace {

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data) {
  constexpr size_t kMaxPiece = size_t{1} << 30;  // the library counts in int
  crc = ~crc;
  while (!data.empty()) {
    const absl::string_view piece = data.substr(0, kMaxPiece);
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(piece.data()));
    crc = crc32_iscsi(bytes, static_cast<int>(piece.size()), crc);
    data.remove_prefix(piece.size());
  }
  return ~crc;
}

}  // namespace millrace
