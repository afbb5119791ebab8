#include "millrace/net/lane/frame.h"

#include <cstring>
#include <utility>

#include "millrace/base/crc32c.h"

namespace millrace::net {
namespace {

// A run of small pieces of this total size becomes a separate segment; so does everything after the small bytes of a
// frame have reached this size.
constexpr size_t kLongRun = size_t{64} << 10;
constexpr size_t kManySmall = size_t{16} << 20;

struct Group {
  size_t first;
  size_t end;
  uint64_t place;
  size_t size;
};

using Groups = absl::InlinedVector<Group, 4>;

// Decides which pieces form a segment.
Groups GroupPieces(absl::Span<const Bytes::Piece> pieces, size_t read_from) {
  Groups groups;
  size_t small = 0;
  const size_t max_groups = FrameLimits().segments;
  for (size_t i = 0; i < pieces.size();) {
    Group group{i, i + 1, FrameSegment::kBulk, pieces[i].data.size()};
    const bool last = groups.size() + 1 == max_groups;
    if (last || group.size < kOwnBuffer) {
      while (group.end < pieces.size() &&
             (last || (pieces[group.end].data.size() < kOwnBuffer && group.size < kLongRun))) {
        group.size += pieces[group.end++].data.size();
      }
      if (group.size < kLongRun && small + group.size <= kManySmall) {
        group.place = FrameSegment::kSmall;
        small += group.size;
      }
    } else if (group.size >= read_from) {
      group.place = FrameSegment::kRemote;
    }
    i = group.end;
    groups.push_back(group);
  }
  return groups;
}

}  // namespace

OutFrame MakeFrame(FrameHeader header, Bytes message, size_t read_from, uint64_t announcement) {
  OutFrame frame;
  frame.payload = message.size();
  const auto pieces = message.pieces();
  const Groups groups = GroupPieces(pieces, announcement == 0 ? SIZE_MAX : read_from);
  header.segments = static_cast<uint32_t>(groups.size());
  for (const Group& group : groups) {
    if (group.place == FrameSegment::kSmall) header.small_bytes += static_cast<uint32_t>(group.size);
    if (group.place == FrameSegment::kBulk) header.bulk_bytes += group.size;
    if (group.place == FrameSegment::kRemote) header.announcement = announcement;
  }
  const size_t table_size = groups.size() * sizeof(FrameSegment);
  frame.head.resize(sizeof(header) + table_size + header.small_bytes);
  char* table = frame.head.data() + sizeof(header);
  char* small = table + table_size;
  for (const Group& group : groups) {
    FrameSegment segment{(group.place << FrameSegment::kSizeBits) | group.size, 0};
    if (group.place == FrameSegment::kRemote)
      segment.address = reinterpret_cast<uintptr_t>(pieces[group.first].data.data());
    std::memcpy(table, &segment, sizeof(segment));
    table += sizeof(segment);
    for (size_t i = group.first; i < group.end; ++i) {
      const absl::string_view data = pieces[i].data;
      if (group.place == FrameSegment::kSmall) {
        std::memcpy(small, data.data(), data.size());
        small += data.size();
      } else {
        (group.place == FrameSegment::kBulk ? frame.bulk : frame.announced).Append(data, pieces[i].owner);
      }
    }
  }
  header.crc = 0;
  std::memcpy(frame.head.data(), &header, sizeof(header));
  header.crc = Crc32c(frame.head);
  std::memcpy(frame.head.data(), &header.crc, sizeof(header.crc));
  frame.header = header;
  return frame;
}

Bytes Received::Take() {
  Bytes bytes;
  for (Part& part : parts) bytes.Append(part.data, std::move(part.owner));
  parts.clear();
  return bytes;
}

}  // namespace millrace::net
