#include <algorithm>
#include <cstring>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

Status CheckSize(absl::string_view elements, const net::Bytes& message) {
  if (elements.size() == message.size()) return absl::OkStatus();
  return InvalidArgument("a message of ", message.size(), " bytes came where ", elements.size(), " were due");
}

}  // namespace

Status Workspace::Put(int64_t first, int64_t last, const net::Bytes& message) const {
  const absl::string_view elements = bytes(first, last);
  MR_RETURN_IF_ERROR(CheckSize(elements, message));
  char* to = data + (elements.data() - data);
  for (const net::Bytes::Piece& piece : message.pieces()) {
    std::memcpy(to, piece.data.data(), piece.data.size());
    to += piece.data.size();
  }
  return absl::OkStatus();
}

Status Workspace::Combine(int64_t first, int64_t last, const net::Bytes& message, bool message_first) const {
  const absl::string_view elements = bytes(first, last);
  MR_RETURN_IF_ERROR(CheckSize(elements, message));
  if (elements.empty()) return absl::OkStatus();
  const AlignedMessage other(message);
  char* const own = data + (elements.data() - data);
  Reduce(dtype, reduction, message_first ? other.data() : own, message_first ? own : other.data(), own, last - first);
  return absl::OkStatus();
}

std::vector<int64_t> EvenBounds(int64_t count, int parts) {
  std::vector<int64_t> bounds;
  for (int part = 0; part <= parts; ++part) {
    const int64_t whole = count / parts, rest = count % parts;
    bounds.push_back(whole * part + std::min<int64_t>(part, rest));
  }
  return bounds;
}

}  // namespace millrace::collective
