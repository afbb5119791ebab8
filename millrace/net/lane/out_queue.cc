#include "millrace/net/lane/out_queue.h"

#include <algorithm>
#include <utility>

namespace millrace::net {
namespace {

// The release of up to this much of the sender's memory may wait for the next frame.
constexpr size_t kOwedBytes = 1 << 20;

// Frames that must stay in order within their call; all others may overtake them.
bool BelongsToCall(FrameKind kind) {
  return kind == FrameKind::kCall || kind == FrameKind::kMessage || kind == FrameKind::kAnswer ||
         kind == FrameKind::kError;
}

}  // namespace

bool OutQueue::Admits(const OutFrame& frame) const {
  if (frame.payload == 0) return true;
  if (frame.payload <= limits_.small) return in_flight_ + frame.payload <= window_ + limits_.reserve;
  // The other side acknowledges consumed bytes only after up to an eighth of the window. A message larger than the
  // window is sent when nearly everything else has been consumed.
  return in_flight_ + frame.payload <= window_ || in_flight_ <= window_ / 4;
}

void OutQueue::Queue(OutFrame frame) {
  in_flight_ += frame.payload;
  bytes_sent_->fetch_add(frame.head.size() + frame.bulk.size() + frame.announced.size(), std::memory_order_relaxed);
  if (frame.header.announcement != 0) announced_.emplace(frame.header.announcement, std::move(frame.announced));
  patient_ = frame.header.kind == FrameKind::kReleased ? patient_ + 1 : 0;
  queue_.push_back(std::move(frame));
}

bool OutQueue::Add(OutFrame frame) {
  const FrameHeader& header = frame.header;
  const bool of_call = BelongsToCall(header.kind);
  const size_t size = frame.payload;
  if (!of_call) frame.payload = 0;  // it does not count against the window
  // In order within a call: a message does not pass one that waits.
  const auto same_call = [&](const OutFrame& other) { return other.header.call == header.call; };
  const bool behind = !waiting_.empty() &&
                      (header.kind == FrameKind::kBye ||
                       (of_call && (size > limits_.small || std::any_of(waiting_.begin(), waiting_.end(), same_call))));
  if (behind || !Admits(frame)) {
    waiting_.push_back(std::move(frame));
    return false;
  }
  Queue(std::move(frame));
  return true;
}

bool OutQueue::QueueWaiting() {
  bool queued = false;
  while (!waiting_.empty() && Admits(waiting_.front())) {
    Queue(std::move(waiting_.front()));
    waiting_.pop_front();
    queued = true;
  }
  return queued;
}

bool OutQueue::AddCredit(uint64_t bytes) {
  in_flight_ -= std::min(in_flight_, bytes);
  return QueueWaiting();
}

bool OutQueue::DropWaiting(uint64_t call, std::vector<OutFrame>* dropped, bool* unknown) {
  const size_t before = dropped->size();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->header.call != call) {
      ++it;
      continue;
    }
    *unknown |= it->header.kind == FrameKind::kCall;
    dropped->push_back(std::move(*it));
    it = waiting_.erase(it);
  }
  // The frames behind it may have waited only for their turn.
  return dropped->size() > before && QueueWaiting();
}

Bytes OutQueue::Release(uint64_t announcement) {
  const auto it = announced_.find(announcement);
  if (it == announced_.end()) return {};
  Bytes released = std::move(it->second);
  announced_.erase(it);
  return released;
}

bool OutQueue::can_wait() const { return queue_.size() == patient_ && owed_ < kOwedBytes; }

void OutQueue::BeginWrite() {
  owed_ = 0;
  patient_ = 0;
}

size_t OutQueue::Gather(iovec* pieces, size_t most, size_t* total) const {
  size_t count = 0;
  size_t skip = written_;
  *total = 0;
  const auto add = [&](absl::string_view data) {
    const size_t skipped = std::min(skip, data.size());
    skip -= skipped;
    if (skipped == data.size() || count == most) return;
    pieces[count++] = {const_cast<char*>(data.data()) + skipped, data.size() - skipped};
    *total += data.size() - skipped;
  };
  for (auto it = queue_.begin(); it != queue_.end() && count < most; ++it) {
    add(it->head);
    for (const Bytes::Piece& piece : it->bulk.pieces()) add(piece.data);
  }
  return count;
}

void OutQueue::Advance(size_t bytes, std::vector<OutFrame>* done) {
  written_ += bytes;
  while (!queue_.empty()) {
    const size_t size = queue_.front().head.size() + queue_.front().bulk.size();
    if (written_ < size) return;
    written_ -= size;
    done->push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

void OutQueue::TakeQueued(std::vector<OutFrame>* frames) {
  for (OutFrame& frame : queue_) frames->push_back(std::move(frame));
  queue_.clear();
}

void OutQueue::TakeRest(std::vector<OutFrame>* frames, std::vector<Bytes>* announced) {
  for (OutFrame& frame : waiting_) frames->push_back(std::move(frame));
  waiting_.clear();
  for (auto& [id, bytes] : announced_) announced->push_back(std::move(bytes));
  announced_.clear();
}

}  // namespace millrace::net
