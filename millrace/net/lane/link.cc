#include "millrace/net/lane/link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "millrace/net/lane/hello.h"

namespace millrace::net {
namespace {

// The maximum number of pieces per system call.
constexpr size_t kMostPieces = 64;
// The limits until the handshake is complete.
constexpr FrameLimits kHandshakeLimits{.segments = 1, .small_bytes = 1024, .message = 1024};

// How many heartbeats in a row may be missing.
constexpr int kMostSilentBeats = 3;
// More frames than a peer that reads leaves waiting for credit.
constexpr size_t kMostWaitingFrames = size_t{1} << 20;

MemoryProbe RandomProbe() {
  MemoryProbe probe;
  FillWithRandom(probe.data(), probe.size());
  return probe;
}

}  // namespace

LaneLink::LaneLink(LaneCore* core, Fd fd, std::shared_ptr<PeerCounters> counters)
    : core_(core),
      fd_(std::move(fd)),
      counters_(std::move(counters)),
      probe_(RandomProbe()),
      parser_(kHandshakeLimits, core->pool.get()),
      out_({.small = core->options.small, .reserve = core->options.reserve}, &counters_->bytes_sent) {}

LaneLink::~LaneLink() = default;

Status LaneLink::Arm(RefPtr<LaneLink> self) {
  MutexLock lock(&mu_);
  if (over_) return Cancelled("the server is stopping");
  id_ = core_->loop->Add(std::move(self));
  return core_->loop->ArmRead(id_, fd_.get());
}

void LaneLink::SetTerms(const LinkTerms& terms) {
  terms_ = terms;
  {
    MutexLock lock(&mu_);
    out_.set_window(terms.peer_window);
  }
  parser_.set_limits({.message = core_->options.max_message});
  parser_.set_remote_allowed(terms.memory != nullptr);
}

// ---- Sending

bool LaneLink::Send(const FrameHeader& header, Bytes message) {
  return SendFrame(header, std::move(message), /*at_once=*/true);
}

bool LaneLink::BeginWrite() {
  if (over_ || writing_ != Writing::kNo) return false;
  writing_ = Writing::kThread;
  out_.BeginWrite();
  return true;
}

void LaneLink::Flush() {
  {
    MutexLock lock(&mu_);
    if (out_.empty() || !BeginWrite()) return;
  }
  Write();
}

void LaneLink::FlushWithNext() {
  {
    MutexLock lock(&mu_);
    if (out_.can_wait()) return;
  }
  Flush();
}

bool LaneLink::SendFrame(const FrameHeader& header, Bytes message, bool at_once) {
  uint64_t announcement = 0;
  if (message.size() >= core_->options.read_from && terms_.peer_reads_memory && header.kind != FrameKind::kError) {
    MutexLock lock(&mu_);
    announcement = out_.NextAnnouncement();
  }
  OutFrame frame = MakeFrame(header, std::move(message), core_->options.read_from, announcement);
  {
    MutexLock lock(&mu_);
    if (over_) return false;
    if (!out_.Add(std::move(frame))) {
      // The reading thread notices and fails the calls; this thread may belong to one of them.
      if (out_.waiting() > kMostWaitingFrames) shutdown(fd_.get(), SHUT_RDWR);
      return true;
    }
    if (!at_once || !BeginWrite()) return true;
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
    write = out_.DropWaiting(call, &dropped, &unknown) && BeginWrite();
  }
  if (write) Write();
  return unknown;
}

ssize_t LaneLink::SendPieces(absl::Span<const iovec> from) {
  if (tls_ != nullptr) return tls_->Write(from);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(from.data());
  message.msg_iovlen = from.size();
  return sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t LaneLink::Receive(absl::Span<const iovec> to) {
  if (tls_ != nullptr) return tls_->Read(to);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(to.data());
  message.msg_iovlen = to.size();
  return recvmsg(fd_.get(), &message, MSG_DONTWAIT);
}

std::string LaneLink::Failure(int error) const {
  return error == EPROTO && tls_ != nullptr ? absl::StrCat("TLS: ", tls_->error()) : std::strerror(error);
}

void LaneLink::Write() {
  std::vector<OutFrame> done;
  for (;;) {
    iovec pieces[kMostPieces];
    size_t count = 0;
    size_t total = 0;
    {
      MutexLock lock(&mu_);
      if (over_ || out_.empty()) {
        writing_ = Writing::kNo;
        if (over_) out_.TakeQueued(&done);
        return;
      }
      count = out_.Gather(pieces, kMostPieces, &total);
    }
    // Frames that are being written are not moved: other threads only append.
    const ssize_t sent = SendPieces(absl::MakeConstSpan(pieces, count));
    const int error = errno;
    if (sent < 0 && error == EINTR) continue;
    if (sent < 0 && error != EAGAIN && error != EWOULDBLOCK) {
      // The reading thread notices and fails the calls; this thread may belong to one of them.
      shutdown(fd_.get(), SHUT_RDWR);
      MutexLock lock(&mu_);
      writing_ = over_ ? Writing::kNo : Writing::kArmed;
      return;
    }
    const size_t bytes = sent < 0 ? 0 : static_cast<size_t>(sent);
    if (bytes > 0) sent_.store(true, std::memory_order_relaxed);
    MutexLock lock(&mu_);
    if (over_) continue;
    out_.Advance(bytes, &done);
    // Also writes what was queued meanwhile, unless it can wait to be piggybacked.
    if (!out_.partly_written() && out_.can_wait()) {
      writing_ = Writing::kNo;
      return;
    }
    if (bytes < total) {
      writing_ = Writing::kArmed;
      if (core_->loop->ArmWrite(id_, fd_.get()).ok()) return;
      shutdown(fd_.get(), SHUT_RDWR);
      return;
    }
  }
}

void LaneLink::OnWritable() {
  {
    MutexLock lock(&mu_);
    if (writing_ != Writing::kArmed) return;
    writing_ = Writing::kThread;
    out_.BeginWrite();
  }
  Write();
}

void LaneLink::AddCredit(uint64_t bytes) {
  {
    MutexLock lock(&mu_);
    if (!out_.AddCredit(bytes) || !BeginWrite()) return;
  }
  Write();
}

void LaneLink::OnReleased(uint64_t announcement) {
  Bytes released;  // destroyed without the lock
  MutexLock lock(&mu_);
  released = out_.Release(announcement);
}

// ---- The heartbeat

void LaneLink::StartHeartbeat() { ScheduleHeartbeat(); }

void LaneLink::ScheduleHeartbeat() {
  const LaneOptions& options = core_->options;
  MutexLock lock(&mu_);
  if (over_) return;
  heartbeat_ =
      core_->deadlines.Add(options.clock->Now() + options.heartbeat, [self = ShareRef(this)] { self->OnHeartbeat(); });
}

void LaneLink::OnHeartbeat() {
  // What has come and was not read yet, because all threads are busy, counts as well.
  char byte;
  const bool heard =
      heard_.exchange(false, std::memory_order_relaxed) || recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  silent_beats_ = heard ? 0 : silent_beats_ + 1;
  if (silent_beats_ >= kMostSilentBeats) {
    core_->loop->Post([self = ShareRef(this)](EventThread*) {
      self->End(Unavailable("nothing has come over it for ",
                            absl::FormatDuration(kMostSilentBeats * self->core_->options.heartbeat),
                            ", not even a heartbeat: the other side hangs or is cut off"));
    });
    return;
  }
  // A frame without effect.
  if (!sent_.exchange(false, std::memory_order_relaxed)) Send({.kind = FrameKind::kCredit, .argument = 0});
  ScheduleHeartbeat();
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
  std::vector<OutFrame> frames;
  std::vector<Bytes> announced;
  LaneDeadlines::Id heartbeat;
  {
    MutexLock lock(&mu_);
    if (over_) return;
    over_ = true;
    heartbeat = heartbeat_;
    over_flag_.store(true, std::memory_order_release);
    // A thread that is writing uses the queued frames and clears them itself.
    if (writing_ != Writing::kThread) out_.TakeQueued(&frames);
    out_.TakeRest(&frames, &announced);
  }
  shutdown(fd_.get(), SHUT_RDWR);
  core_->loop->Remove(id_);
  core_->deadlines.Remove(heartbeat);
  OnOver(why);
}

}  // namespace millrace::net
