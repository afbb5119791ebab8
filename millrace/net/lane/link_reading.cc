// The reading half of a lane's connection: frames, and the memory that they announce.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "millrace/net/lane/link.h"
#include "millrace/net/lane/sockets.h"

namespace millrace::net {
namespace {

// After this many frames, their handlers run before more is read.
constexpr size_t kFramesAtOnce = 32;
// Copying more than this takes some 100 us or more.
constexpr size_t kShortCopy = 1 << 20;
// When two threads want to watch a link at the same time, nobody watches it for this many messages.
constexpr int kSharedFor = 256;
// By how much a peer may exceed the window with small messages, whatever its options are.
constexpr size_t kLargestReserve = size_t{64} << 20;
// Messages of a peer that no handler has consumed.
constexpr int64_t kMostUnconsumed = int64_t{1} << 20;

// Whether Consumed is called for it in the end.
bool EndsInConsumed(FrameKind kind) {
  return kind == FrameKind::kCall || kind == FrameKind::kMessage || kind == FrameKind::kAnswer ||
         kind == FrameKind::kError;
}

}  // namespace

void LaneLink::OnReadable(EventThread* here) {
  std::vector<Frame> frames;
  Later later;
  Status status;
  {
    MutexLock lock(&reading_mu_);
    status = ReadFrames(&frames);
    for (Frame& frame : frames) {
      Status handled = Handle(std::move(frame), here, &later);
      if (handled.ok()) continue;
      status = std::move(handled);
      break;
    }
  }
  if (watched()) {
    core_->loop->WatchOver();
  } else if (status.ok()) {
    status = core_->loop->ArmRead(id_, fd_.get());
  }
  if (!status.ok()) {
    End(status);
    here->watch()->Forget(this);
  }
  Run(std::move(later), here);
}

// ---- Who reads

void LaneLink::WatchHere(EventWatch* here) {
  if (here->Has(this)) {
    if (armed_as_well_.exchange(false)) core_->loop->DisarmRead(id_, fd_.get());
    return;
  }
  if (shared_for_.load() > 0) {
    --shared_for_;
    return;
  }
  if (watched()) {
    shared_for_.store(kSharedFor);
    return;
  }
  if (over() || !here->Add(ShareRef(this), fd_.get())) return;
  core_->loop->DisarmRead(id_, fd_.get());
  core_->loop->WatchOver();
}

void LaneLink::OnGivenBack() {
  armed_as_well_.store(false);
  if (over()) return;
  Status status = core_->loop->ArmRead(id_, fd_.get());
  if (!status.ok())
    core_->loop->Post([self = ShareRef(this), status = std::move(status)](EventThread*) { self->End(status); });
}

void LaneLink::OnLeftAlone() {
  if (over() || !core_->loop->ArmRead(id_, fd_.get()).ok()) return;  // the watching thread will return to it
  armed_as_well_.store(true);
}

// ---- Frames

Status LaneLink::ReadFrames(std::vector<Frame>* frames) {
  // What TLS has received already must be read now: the socket does not become readable for it again.
  while (frames->size() < kFramesAtOnce || (tls_ != nullptr && tls_->HasPending())) {
    const absl::Span<const iovec> room = parser_.Room();
    const ssize_t got = Receive(room);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (got < 0) return Unavailable("the connection broke: ", Failure(errno));
    if (got == 0) return Unavailable("the other side closed the connection or is gone");
    counters_->bytes_received.fetch_add(static_cast<uint64_t>(got), std::memory_order_relaxed);
    heard_.store(true, std::memory_order_relaxed);
    MR_RETURN_IF_ERROR(parser_.Parse(static_cast<size_t>(got), frames));
    // A short read means that nothing more is available now; more of a large message may arrive meanwhile.
    size_t most = 0;
    for (const iovec& part : room) most += part.iov_len;
    if (static_cast<size_t>(got) < most && !parser_.in_bulk() && tls_ == nullptr) return absl::OkStatus();
  }
  return absl::OkStatus();
}

Status LaneLink::Handle(Frame frame, EventThread* here, Later* later) {
  switch (frame.header.kind) {
    case FrameKind::kReleased:
      OnReleased(frame.header.argument);
      return absl::OkStatus();
    case FrameKind::kCredit:
      AddCredit(frame.header.argument);
      return absl::OkStatus();
    default:
      break;
  }
  if (EndsInConsumed(frame.header.kind)) MR_RETURN_IF_ERROR(CountUnconsumed(frame));
  if (frame.message.announcement != 0) {
    MutexLock lock(&mu_);
    ++fetches_;
  }
  return OnFrame(std::move(frame), here, later);
}

Status LaneLink::CountUnconsumed(const Frame& frame) {
  const LaneOptions& options = core_->options;
  const int64_t messages = unconsumed_messages_.fetch_add(1, std::memory_order_relaxed);
  const int64_t bytes =
      unconsumed_bytes_.fetch_add(static_cast<int64_t>(frame.message.size), std::memory_order_relaxed);
  // What the sender counts as in flight is at least this much. Its reserve may be another one than ours.
  const int64_t most = static_cast<int64_t>(options.window + std::max(4 * options.reserve, kLargestReserve));
  if (frame.message.size > 0 && bytes > most) {
    return InvalidArgument("it ignores flow control: another message of ", frame.message.size, " bytes while ", bytes,
                           " are not consumed, of which there may be ", most);
  }
  if (messages >= kMostUnconsumed)
    return InvalidArgument("more than ", kMostUnconsumed, " messages that nobody has taken yet");
  return absl::OkStatus();
}

void LaneLink::Run(Later later, EventThread* here) {
  // Other threads take the rest, in case the first runs long.
  for (size_t i = 1; i < later.size(); ++i) core_->loop->Post(std::move(later[i]));
  if (!later.empty()) later[0](here);
}

Status LaneLink::Fetch(Received* message, EventThread* here) {
  if (message->announcement == 0) return absl::OkStatus();
  absl::InlinedVector<MemoryCopy, 4> copies;
  size_t bytes = 0;
  for (Received::Part& part : message->parts) {
    if (part.address == 0) continue;
    RefPtr<Buffer> buffer = core_->pool->Allocate(part.size);
    if (!buffer) {
      EndFetch(message->announcement, 0);
      return ResourceExhausted("there is no memory for ", part.size, " bytes of a message");
    }
    copies.push_back({buffer->data(), part.address, part.size});
    bytes += part.size;
    part.data = {static_cast<const char*>(buffer->data()), part.size};
    part.owner = std::move(buffer);
  }
  if (bytes > kShortCopy && here != nullptr) here->HandOver();
  Status status =
      terms_.memory != nullptr ? terms_.memory->Read(copies) : Unavailable("the other side's memory cannot be read");
  // The sender frees the memory after it has closed the connection, and not before.
  if (status.ok() && (over() || PeerHungUp(fd_.get())))
    status = Unavailable("the other side closed the connection or is gone");
  if (!status.ok()) {
    End(status);
    return status;
  }
  counters_->bytes_received.fetch_add(bytes, std::memory_order_relaxed);
  EndFetch(message->announcement, bytes);
  message->announcement = 0;
  return absl::OkStatus();
}

void LaneLink::EndFetch(uint64_t announcement, size_t bytes) {
  SendFrame({.kind = FrameKind::kReleased, .argument = announcement}, {}, /*at_once=*/false);
  bool end = false;
  {
    MutexLock lock(&mu_);
    out_.Owe(bytes);
    end = --fetches_ == 0 && end_when_read_;
  }
  if (end) End(Cancelled("the server is stopping"));
}

void LaneLink::Discard(Received message) {
  const size_t size = message.size;
  if (message.announcement != 0) EndFetch(message.announcement, 0);
  Consumed(size);
  Flush();
}

void LaneLink::Consumed(size_t bytes) {
  unconsumed_messages_.fetch_sub(1, std::memory_order_relaxed);
  if (bytes == 0) return;
  unconsumed_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  uint64_t tell = 0;
  {
    MutexLock lock(&mu_);
    consumed_ += bytes;
    if (consumed_ < std::max<size_t>(core_->options.window / 8, 1)) return;
    tell = std::exchange(consumed_, 0);
  }
  SendFrame({.kind = FrameKind::kCredit, .argument = tell}, {}, /*at_once=*/false);
}

}  // namespace millrace::net
