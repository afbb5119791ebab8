// Bytes as a lane might get them, in pieces, and frames that are right but for what the fuzzer changes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "millrace/base/crc32c.h"
#include "millrace/net/lane/frame_parser.h"

namespace {

using namespace millrace;
using namespace millrace::net;

// Makes the checksums right where a frame's head is whole, so that what lies behind them is reached.
std::string WithChecksums(absl::string_view bytes) {
  std::string text(bytes);
  size_t at = 0;
  while (at + sizeof(FrameHeader) <= text.size()) {
    FrameHeader header;
    std::memcpy(&header, &text[at], sizeof(header));
    header.segments %= 8;
    header.small_bytes %= 512;
    header.bulk_bytes %= 100000;
    const size_t head = sizeof(header) + header.segments * sizeof(FrameSegment) + header.small_bytes;
    if (at + head > text.size()) break;
    header.crc = 0;
    std::memcpy(&text[at], &header, sizeof(header));
    header.crc = Crc32c(absl::string_view(text).substr(at, head));
    std::memcpy(&text[at], &header, sizeof(header));
    at += head + header.bulk_bytes;
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t piece = 1 + data[0] * 7;
  absl::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string fixed = data[1] % 2 == 1 ? WithChecksums(bytes) : std::string(bytes);
  FrameParser parser({.segments = 64, .small_bytes = 4096, .message = 1 << 20}, Allocator::Heap());
  parser.set_remote_allowed(data[1] % 4 >= 2);
  std::vector<Frame> frames;
  for (size_t at = 0; at < fixed.size();) {
    size_t count = std::min(piece, fixed.size() - at);
    size_t put = 0;
    for (const iovec& room : parser.Room()) {
      const size_t step = std::min(room.iov_len, count - put);
      std::memcpy(room.iov_base, fixed.data() + at + put, step);
      put += step;
    }
    at += put;
    if (!parser.Parse(put, &frames).ok()) return 0;
  }
  for (Frame& frame : frames) {
    size_t total = 0;
    for (const Received::Part& part : frame.message.parts) total += part.address == 0 ? part.data.size() : part.size;
    if (total != frame.message.size) __builtin_trap();
    if (frame.message.announcement == 0 && frame.message.Take().Flatten().size() != total) __builtin_trap();
  }
  return 0;
}
