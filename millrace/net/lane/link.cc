#include "millrace/net/lane/link.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "millrace/net/lane/hello.h"

namespace millrace::net {
namespace {

// Pieces that one system call gathers.
constexpr size_t kMostPieces = 64;
// As much of the sender's memory may wait for the next frame to be given free.
constexpr size_t kOwedBytes = 1 << 20;
// Until the other side has said who it is.
constexpr FrameLimits kHandshakeLimits{.segments = 1, .small_bytes = 1024, .message = 1024};

MemoryProbe RandomProbe() {
  MemoryProbe probe;
  FillWithRandom(probe.data(), probe.size());
  return probe;
}

// Those have an order within their call; all others pass them.
bool BelongsToCall(FrameKind kind) {
  return kind == FrameKind::kCall || kind == FrameKind::kMessage || kind == FrameKind::kAnswer || kind == FrameKind::kError;
}

}  // namespace

LaneLink::LaneLink(LaneCore* core, Fd fd, std::shared_ptr<PeerCounters> counters)
    : core_(core),
      fd_(std::move(fd)),
      write_fd_(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)),
      counters_(std::move(counters)),
      probe_(RandomProbe()),
      parser_(kHandshakeLimits, core->pool.get()) {}

LaneLink::~LaneLink() = default;

Status LaneLink::Arm(RefPtr<LaneLink> self) {
  if (!write_fd_.ok()) return ResourceExhausted("there are no file descriptors left");
  MutexLock lock(&mu_);
  if (over_) return Cancelled("the server is stopping");
  id_ = core_->loop->Add(std::move(self));
  return core_->loop->ArmRead(id_, fd_.get());
}

void LaneLink::SetTerms(const LinkTerms& terms) {
  terms_ = terms;
  parser_.set_limits({.message = core_->options.max_message});
  parser_.set_remote_allowed(terms.process != 0);
}

// ---- Sending

bool LaneLink::Admits(const OutFrame& frame) const {
  if (frame.payload == 0) return true;
  const size_t window = terms_.peer_window;
  if (frame.payload <= core_->options.small) return in_flight_ + frame.payload <= window + core_->options.reserve;
  // The other side keeps up to an eighth of the window to itself before it tells what it has consumed, so that a message larger than
  // the window goes when all others are done.
  return in_flight_ + frame.payload <= window || in_flight_ <= window / 4;
}

void LaneLink::Queue(OutFrame frame) {
  in_flight_ += frame.payload;
  counters_->bytes_sent.fetch_add(frame.head.size() + frame.bulk.size() + frame.announced.size(), std::memory_order_relaxed);
  if (frame.header.announcement != 0) announced_.emplace(frame.header.announcement, std::move(frame.announced));
  patient_ = frame.header.kind == FrameKind::kReleased ? patient_ + 1 : 0;
  queue_.push_back(std::move(frame));
}

bool LaneLink::Send(const FrameHeader& header, Bytes message) { return SendFrame(header, std::move(message), /*at_once=*/true); }

void LaneLink::BeginWrite() {
  writing_ = Writing::kThread;
  owed_ = 0;
  patient_ = 0;
}

void LaneLink::Flush() {
  {
    MutexLock lock(&mu_);
    if (queue_.empty() || over_ || writing_ != Writing::kNo) return;
    BeginWrite();
  }
  Write();
}

void LaneLink::FlushWithNext() {
  {
    MutexLock lock(&mu_);
    if (queue_.size() == patient_ && owed_ < kOwedBytes) return;
  }
  Flush();
}

bool LaneLink::SendFrame(const FrameHeader& header, Bytes message, bool at_once) {
  const size_t size = message.size();
  uint64_t announcement = 0;
  if (size >= core_->options.read_from && terms_.peer_reads_memory && header.kind != FrameKind::kError) {
    MutexLock lock(&mu_);
    announcement = next_announcement_++;
  }
  OutFrame frame = MakeFrame(header, std::move(message), core_->options.read_from, announcement);
  if (!BelongsToCall(header.kind)) frame.payload = 0;  // nobody counts it there
  {
    MutexLock lock(&mu_);
    if (over_) return false;
    // In order within a call: a message does not pass one that waits.
    const auto same_call = [&](const OutFrame& other) { return other.header.call == header.call; };
    const bool behind = !waiting_.empty() &&
                        (header.kind == FrameKind::kBye || (BelongsToCall(header.kind) && (size > core_->options.small ||
                                                                                         std::any_of(waiting_.begin(), waiting_.end(), same_call))));
    if (behind || !Admits(frame)) {
      waiting_.push_back(std::move(frame));
      return true;
    }
    Queue(std::move(frame));
    if (!at_once || writing_ != Writing::kNo) return true;
    BeginWrite();
  }
  Write();
  return true;
}

bool LaneLink::DropQueued(uint64_t call) {
  std::vector<OutFrame> dropped;  // destroyed without the lock
  bool unknown = false;
  bool write = false;
  {
    MutexLock lock(&mu_);
    if (waiting_.empty()) return false;
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (it->header.call != call) {
        ++it;
        continue;
      }
      unknown |= it->header.kind == FrameKind::kCall;
      dropped.push_back(std::move(*it));
      it = waiting_.erase(it);
    }
    // Those behind may have waited for no more than their turn.
    write = !dropped.empty() && QueueWaiting();
  }
  if (write) Write();
  return unknown;
}

void LaneLink::Advance(size_t bytes, std::vector<OutFrame>* done) {
  written_ += bytes;
  while (!queue_.empty()) {
    const size_t size = queue_.front().head.size() + queue_.front().bulk.size();
    if (written_ < size) return;
    written_ -= size;
    done->push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

void LaneLink::Write() {
  std::vector<OutFrame> done;
  for (;;) {
    iovec pieces[kMostPieces];
    size_t count = 0;
    size_t total = 0;
    {
      MutexLock lock(&mu_);
      if (over_ || queue_.empty()) {
        writing_ = Writing::kNo;
        if (over_) {
          for (OutFrame& frame : queue_) done.push_back(std::move(frame));
          queue_.clear();
        }
        return;
      }
      size_t skip = written_;
      const auto add = [&](absl::string_view data) {
        const size_t skipped = std::min(skip, data.size());
        skip -= skipped;
        if (skipped == data.size() || count == kMostPieces) return;
        pieces[count++] = {const_cast<char*>(data.data()) + skipped, data.size() - skipped};
        total += data.size() - skipped;
      };
      for (auto it = queue_.begin(); it != queue_.end() && count < kMostPieces; ++it) {
        add(it->head);
        for (const Bytes::Piece& piece : it->bulk.pieces()) add(piece.data);
      }
    }
    // Frames that are being written stay where they are: others only add behind them.
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(write_fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    const int error = errno;
    if (sent < 0 && error == EINTR) continue;
    if (sent < 0 && error != EAGAIN && error != EWOULDBLOCK) {
      // Whoever reads notices, and says so to the calls: this may be the thread of one of them.
      shutdown(fd_.get(), SHUT_RDWR);
      MutexLock lock(&mu_);
      writing_ = over_ ? Writing::kNo : Writing::kArmed;
      return;
    }
    const size_t bytes = sent < 0 ? 0 : static_cast<size_t>(sent);
    MutexLock lock(&mu_);
    if (over_) continue;
    Advance(bytes, &done);
    // What was queued meanwhile goes too, unless it can wait for a frame to ride with.
    if (written_ == 0 && queue_.size() == patient_ && owed_ < kOwedBytes) {
      writing_ = Writing::kNo;
      return;
    }
    if (bytes < total) {
      writing_ = Writing::kArmed;
      if (core_->loop->ArmWrite(id_, write_fd_.get()).ok()) return;
      shutdown(fd_.get(), SHUT_RDWR);
      return;
    }
  }
}

void LaneLink::OnWritable() {
  {
    MutexLock lock(&mu_);
    if (writing_ != Writing::kArmed) return;
    BeginWrite();
  }
  Write();
}

bool LaneLink::QueueWaiting() {
  bool queued = false;
  while (!waiting_.empty() && Admits(waiting_.front())) {
    Queue(std::move(waiting_.front()));
    waiting_.pop_front();
    queued = true;
  }
  if (!queued || over_ || writing_ != Writing::kNo) return false;
  BeginWrite();
  return true;
}

void LaneLink::AddCredit(uint64_t bytes) {
  {
    MutexLock lock(&mu_);
    in_flight_ -= std::min(in_flight_, bytes);
    if (!QueueWaiting()) return;
  }
  Write();
}

void LaneLink::OnReleased(uint64_t announcement) {
  Bytes released;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto it = announced_.find(announcement);
  if (it == announced_.end()) return;
  released = std::move(it->second);
  announced_.erase(it);
}

// ---- The end

void LaneLink::EndWhenRead() {
  {
    MutexLock lock(&mu_);
    end_when_read_ = true;
    if (fetches_ > 0) return;
  }
  End(Cancelled("the server is stopping"));
}

void LaneLink::End(const Status& why) {
  std::deque<OutFrame> queue;
  std::deque<OutFrame> waiting;
  absl::flat_hash_map<uint64_t, Bytes> announced;
  {
    MutexLock lock(&mu_);
    if (over_) return;
    over_ = true;
    over_flag_.store(true, std::memory_order_release);
    // A thread that writes looks at them, and clears them.
    if (writing_ != Writing::kThread) queue.swap(queue_);
    waiting.swap(waiting_);
    announced.swap(announced_);
  }
  shutdown(fd_.get(), SHUT_RDWR);
  core_->loop->Remove(id_);
  OnOver(why);
}

}  // namespace millrace::net
