#include "millrace/net/lane/frame_parser.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "millrace/base/crc32c.h"

namespace millrace::net {
namespace {

constexpr size_t kStaged = size_t{64} << 10;

}  // namespace

FrameParser::FrameParser(const FrameLimits& limits, Allocator* memory)
    : limits_(limits), memory_(memory), staged_(new char[kStaged]) {}

char* FrameParser::Target(size_t* left) {
  switch (state_) {
    case State::kHeader:
      *left = sizeof(FrameHeader) - filled_;
      return reinterpret_cast<char*>(&frame_.header) + filled_;
    case State::kHead:
      *left = head_->size() - filled_;
      return static_cast<char*>(head_->data()) + filled_;
    case State::kBulk:
      break;
  }
  const Received::Part& part = frame_.message.parts[part_];
  *left = part.size - filled_;
  return const_cast<char*>(part.data.data()) + filled_;
}

absl::Span<const iovec> FrameParser::Room() {
  // Parse has moved everything that was staged into targets.
  begin_ = end_ = 0;
  room_[1] = {staged_.get(), kStaged};
  direct_ = 0;
  if (state_ == State::kHeader) return absl::MakeConstSpan(room_ + 1, 1);
  char* const to = Target(&direct_);
  room_[0] = {to, direct_};
  return room_;
}

Status FrameParser::Parse(size_t count, std::vector<Frame>* frames) {
  const size_t direct = std::min(count, direct_);
  filled_ += direct;
  direct_ = 0;
  end_ = count - direct;
  begin_ = 0;
  for (;;) {
    size_t left;
    char* const to = Target(&left);
    if (left > 0) {
      const size_t step = std::min(left, end_ - begin_);
      std::memcpy(to, staged_.get() + begin_, step);
      begin_ += step;
      filled_ += step;
      if (step < left) return absl::OkStatus();
    }
    MR_RETURN_IF_ERROR(FinishStage(frames));
  }
}

Status FrameParser::FinishStage(std::vector<Frame>* frames) {
  filled_ = 0;
  switch (state_) {
    case State::kHeader:
      MR_RETURN_IF_ERROR(CheckHeader());
      MR_RETURN_IF_ERROR(StartHead());
      break;
    case State::kHead:
      MR_RETURN_IF_ERROR(FinishHead());
      break;
    case State::kBulk:
      ++part_;
      break;
  }
  if (state_ != State::kBulk) return absl::OkStatus();
  auto& parts = frame_.message.parts;
  const auto is_bulk = [](const Received::Part& part) { return part.address == 0 && part.size > 0; };
  while (part_ < parts.size() && !is_bulk(parts[part_])) ++part_;
  if (part_ < parts.size()) return absl::OkStatus();
  frames->push_back(std::move(frame_));
  frame_ = Frame();
  head_.reset();
  state_ = State::kHeader;
  return absl::OkStatus();
}

Status FrameParser::CheckHeader() {
  const FrameHeader& header = frame_.header;
  const int kind = static_cast<int>(header.kind);
  if (kind < static_cast<int>(FrameKind::kHello) || kind > static_cast<int>(FrameKind::kBye)) {
    return InvalidArgument("a frame of the unknown kind ", kind);
  }
  if (header.segments > 0 && !CarriesMessage(header.kind))
    return InvalidArgument("a frame of kind ", kind, " with a message");
  if (header.segments > limits_.segments) {
    return InvalidArgument("a frame of ", header.segments, " segments, where ", limits_.segments, " are allowed");
  }
  if (header.small_bytes > limits_.small_bytes) {
    return InvalidArgument("a frame with ", header.small_bytes, " bytes before its large segments, where ",
                           limits_.small_bytes, " are allowed");
  }
  if (header.bulk_bytes > limits_.message) {
    return InvalidArgument("a message of ", header.bulk_bytes, " bytes, where ", limits_.message, " are allowed");
  }
  return absl::OkStatus();
}

Status FrameParser::StartHead() {
  const size_t size = frame_.header.segments * sizeof(FrameSegment) + frame_.header.small_bytes;
  head_ = Allocator::Heap()->Allocate(size);
  if (!head_) return ResourceExhausted("there is no memory for a frame of ", size, " bytes");
  state_ = State::kHead;
  return absl::OkStatus();
}

Status FrameParser::FinishHead() {
  FrameHeader header = frame_.header;
  header.crc = 0;
  const char* const head = static_cast<const char*>(head_->data());
  uint32_t crc = Crc32c({reinterpret_cast<const char*>(&header), sizeof(header)});
  crc = ExtendCrc32c(crc, {head, head_->size()});
  if (crc != frame_.header.crc) return InvalidArgument("a frame whose checksum is wrong");
  MR_RETURN_IF_ERROR(AddSegments(head, head + header.segments * sizeof(FrameSegment), head_));
  state_ = State::kBulk;
  part_ = 0;
  return absl::OkStatus();
}

Status FrameParser::AddSegments(const char* table, const char* small, RefPtr<const RefCounted> small_owner) {
  const FrameHeader& header = frame_.header;
  Received& message = frame_.message;
  uint64_t small_left = header.small_bytes;
  uint64_t bulk_left = header.bulk_bytes;
  uint64_t total = 0;
  bool remote = false;
  // All sizes are checked before any memory is allocated.
  for (uint32_t i = 0; i < header.segments; ++i, table += sizeof(FrameSegment)) {
    FrameSegment segment;
    std::memcpy(&segment, table, sizeof(segment));
    const uint64_t size = segment.size();
    if (size == 0) return InvalidArgument("a frame with an empty segment");
    if (size > limits_.message || (total += size) > limits_.message) {
      return InvalidArgument("a message of more than the ", limits_.message, " bytes that are allowed");
    }
    switch (segment.place()) {
      case FrameSegment::kSmall:
        if (size > small_left) return InvalidArgument("a frame whose segments are longer than it is");
        message.parts.push_back({{small, size}, small_owner});
        small += size;
        small_left -= size;
        break;
      case FrameSegment::kBulk:
        if (size > bulk_left) return InvalidArgument("a frame whose segments are longer than it is");
        bulk_left -= size;
        message.parts.push_back({{}, nullptr, 0, size});
        break;
      case FrameSegment::kRemote:
        if (!remote_allowed_) return InvalidArgument("a frame that refers to memory, which was not agreed on");
        if (segment.address == 0) return InvalidArgument("a frame that refers to no memory");
        remote = true;
        message.parts.push_back({{}, nullptr, segment.address, size});
        break;
      default:
        return InvalidArgument("a segment of an unknown kind");
    }
  }
  if (small_left != 0 || bulk_left != 0) return InvalidArgument("a frame that is longer than its segments");
  if (remote != (header.announcement != 0))
    return InvalidArgument("a frame that announces memory and has none, or has some and does not");
  for (Received::Part& part : message.parts) {
    if (part.address != 0 || part.size == 0) continue;
    RefPtr<Buffer> buffer = memory_->Allocate(part.size);
    if (!buffer) return ResourceExhausted("there is no memory for ", part.size, " bytes of a message");
    part.data = {static_cast<const char*>(buffer->data()), part.size};
    part.owner = std::move(buffer);
  }
  message.announcement = header.announcement;
  message.size = total;
  return absl::OkStatus();
}

}  // namespace millrace::net
