#include <algorithm>
#include <cstring>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

// A part of a core's second-level cache: a block is still there when it is combined.
constexpr size_t kBlock = size_t{128} << 10;
// A part of its first-level cache, and whole elements of every type.
constexpr size_t kSmallBlock = size_t{8} << 10;

Status CheckSize(absl::string_view elements, const Incoming& message) {
  if (elements.size() == message.size()) return absl::OkStatus();
  return InvalidArgument("a message of ", message.size(), " bytes came where ", elements.size(), " were due");
}

}  // namespace

Status Incoming::CopyTo(char* to) const {
  if (size_ == 0) return absl::OkStatus();
  if (shared_ != nullptr) {
    std::memcpy(to, shared_, size_);
    return absl::OkStatus();
  }
  if (bytes_ == nullptr) return memory_->Read(address_, to, size_);
  for (const net::Bytes::Piece& piece : bytes_->pieces()) {
    std::memcpy(to, piece.data.data(), piece.data.size());
    to += piece.data.size();
  }
  return absl::OkStatus();
}

Status Incoming::ForBlocks(absl::FunctionRef<void(size_t offset, const char* data, size_t size)> use) const {
  if (size_ == 0) return absl::OkStatus();
  if (shared_ != nullptr) {
    use(0, shared_, size_);
    return absl::OkStatus();
  }
  if (bytes_ != nullptr) {
    const AlignedMessage message(*bytes_);
    use(0, message.data(), size_);
    return absl::OkStatus();
  }
  alignas(64) static thread_local char block[kBlock];
  for (size_t at = 0; at < size_; at += kBlock) {
    const size_t size = std::min(kBlock, size_ - at);
    MR_RETURN_IF_ERROR(memory_->Read(address_ + at, block, size));
    use(at, block, size);
  }
  return absl::OkStatus();
}

Status Workspace::Put(int64_t first, int64_t last, const Incoming& message) const {
  const absl::string_view elements = bytes(first, last);
  MR_RETURN_IF_ERROR(CheckSize(elements, message));
  return message.CopyTo(data + (elements.data() - data));
}

Status Workspace::Combine(int64_t first, int64_t last, const Incoming& message, bool message_first) const {
  const absl::string_view elements = bytes(first, last);
  MR_RETURN_IF_ERROR(CheckSize(elements, message));
  char* const own = data + (elements.data() - data);
  const auto element = static_cast<int64_t>(SizeOf(dtype));
  return message.ForBlocks([&](size_t offset, const char* block, size_t size) {
    char* const at = own + offset;
    Reduce(dtype, reduction, message_first ? block : at, message_first ? at : block, at,
           static_cast<int64_t>(size) / element);
  });
}

Status Workspace::Complete(int64_t first, int64_t last, const Incoming& message, int ranks, char* copy) const {
  const absl::string_view elements = bytes(first, last);
  MR_RETURN_IF_ERROR(CheckSize(elements, message));
  char* const own = data + (elements.data() - data);
  const auto element = static_cast<int64_t>(SizeOf(dtype));
  return message.ForBlocks([&](size_t offset, const char* block, size_t size) {
    for (size_t at = 0; at < size; at += kSmallBlock) {
      const size_t part = std::min(kSmallBlock, size - at);
      const int64_t count = static_cast<int64_t>(part) / element;
      char* const result = own + offset + at;
      Reduce(dtype, reduction, result, block + at, result, count);
      FinishReduction(dtype, reduction, result, count, mean_of > 0 ? mean_of : ranks);
      std::memcpy(copy + offset + at, result, part);
    }
  });
}

void Workspace::Finish(int64_t first, int64_t last, int ranks) const {
  FinishReduction(dtype, reduction, data + (bytes(first, last).data() - data), last - first,
                  mean_of > 0 ? mean_of : ranks);
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
