#include "millrace/collective/instance.h"

#include <algorithm>
#include <utility>

namespace millrace::collective {
namespace {

// Smaller pieces are copied: that costs less than telling the sender that they have been read.
constexpr size_t kLendFrom = size_t{32} << 10;
// The heads of the messages that come before an operation begins.
constexpr size_t kHeadsAllowance = size_t{1} << 20;
// What a message needs beside its payload.
constexpr size_t kHeadBytes = 64;
// How often the bytes of an operation may wait from one rank: in fixed order it may send many partial sums.
constexpr size_t kMostEarly = 32;

}  // namespace

Instance::Instance(std::shared_ptr<InstanceHost> host, uint64_t sequence, InstanceLimits limits)
    : host_(std::move(host)), sequence_(sequence), limits_(limits), peers_(host_->size()) {}

void Instance::Begin(Part part) {
  {
    MutexLock lock(&mu_);
    MR_CHECK(!begun_.has_value());
    begun_ = part.spec;
  }
  Post({.kind = Event::Kind::kBegin, .part = std::make_unique<Part>(std::move(part))});
}

void Instance::Queue(int from, Message message) {
  Queue({.kind = Event::Kind::kMessage, .from = from, .message = std::move(message)});
}

void Instance::PeerLeft(int rank) { Post({.kind = Event::Kind::kLeft, .from = rank}); }

void Instance::Fail(Status why) { Post({.kind = Event::Kind::kFail, .why = std::move(why)}); }

std::optional<OperationSpec> Instance::spec() const {
  MutexLock lock(&mu_);
  return begun_;
}

void Instance::Queue(Event event) {
  MutexLock lock(&mu_);
  if (event.kind == Event::Kind::kFail) {
    events_.push_front(std::move(event));
  } else {
    events_.push_back(std::move(event));
  }
}

void Instance::Work() {
  {
    MutexLock lock(&mu_);
    if (busy_) return;
    busy_ = true;
  }
  const std::shared_ptr<Instance> self = shared_from_this();  // the group may let go of it meanwhile
  for (;;) {
    Event next{};
    {
      MutexLock lock(&mu_);
      if (events_.empty()) {
        busy_ = false;
        return;
      }
      next = std::move(events_.front());
      events_.pop_front();
    }
    Handle(std::move(next));
  }
}

void Instance::Handle(Event event) {
  switch (event.kind) {
    case Event::Kind::kBegin:
      if (phase_ == Phase::kNotBegun) return HandleBegin(std::move(*event.part));
      part_ = std::move(*event.part);
      if (phase_ == Phase::kOver) Finish(failed_);  // the group failed before
      return;
    case Event::Kind::kFail:
      if (phase_ == Phase::kOver) return;
      if (part_.done != nullptr) return Finish(std::move(event.why));
      phase_ = Phase::kOver;
      failed_ = std::move(event.why);
      before_.clear();
      return;
    case Event::Kind::kLeft:
      if (phase_ == Phase::kOver || phase_ == Phase::kFailing) return;
      if (Peer& peer = peers_[event.from]; !std::exchange(peer.left, true)) {
        // It has not read what it should have, whomever this rank waits for.
        const bool unread = peer.destination && !peer.done && (!peer.ready || !peer.source);
        if (phase_ != Phase::kNotBegun && unread) return FailGroup(LeftEarly(event.from));
      }
      if (phase_ == Phase::kRunning) Advance();
      if (phase_ == Phase::kDraining) Drain();
      return;
    case Event::Kind::kMessage:
      if (phase_ == Phase::kRunning || phase_ == Phase::kDraining)
        return HandleMessage(event.from, std::move(event.message));
      if (phase_ != Phase::kNotBegun) return;
      size_t& bytes = peers_[event.from].early_bytes;
      bytes += event.message.payload.size() + kHeadBytes;  // what is lent takes no memory here
      if (bytes > limits_.eager_bytes + kHeadsAllowance) {
        phase_ = Phase::kFailing;
        return host_->Fail(InvalidArgument(host_->RankName(event.from), " sends more than ", limits_.eager_bytes,
                                           " bytes for an operation that this rank has not started"));
      }
      before_.push_back(std::move(event));
      return;
  }
}

void Instance::HandleBegin(Part part) {
  part_ = std::move(part);
  phase_ = Phase::kRunning;
  const OperationSpec& spec = part_.spec;
  const bool eager = spec.bytes() <= limits_.eager_bytes;
  for (Peer& peer : peers_) peer.early_bytes = 0;
  for (const int rank : part_.algorithm->destinations()) {
    peers_[rank].destination = true;
    peers_[rank].ready = eager;
  }
  for (const int rank : part_.algorithm->sources()) {
    peers_[rank].source = true;
    if (eager) continue;
    host_->SendTo(rank, net::Bytes::Of(EncodeHead({.kind = MessageKind::kReady, .sequence = sequence_, .spec = spec})));
  }
  if (Status started = part_.algorithm->Start(*this); !started.ok()) return FailGroup(std::move(started));
  awaited_.store(part_.algorithm->awaited(), std::memory_order_relaxed);
  for (Event& event : std::exchange(before_, {})) {
    if (phase_ != Phase::kRunning && phase_ != Phase::kDraining) return;
    HandleMessage(event.from, std::move(event.message));
  }
  if (phase_ == Phase::kRunning) Advance();
}

void Instance::HandleMessage(int from, Message message) {
  Peer& peer = peers_[from];
  if (message.spec.has_value() && !peer.checked) {
    if (Status same = CheckSame(host_->RankName(host_->rank()), part_.spec, host_->RankName(from), *message.spec);
        !same.ok())
      return FailGroup(std::move(same));
    peer.checked = true;
  }
  switch (message.kind) {
    case MessageKind::kReady:
      peer.ready = true;
      for (net::Bytes& held : std::exchange(peer.held, {})) host_->SendTo(from, std::move(held));
      if (phase_ == Phase::kDraining) Drain();
      return;
    case MessageKind::kDone:
      peer.done = true;
      if (phase_ == Phase::kDraining) Drain();
      return;
    default:
      break;
  }
  if (!peer.source)
    return FailGroup(
        InvalidArgument(host_->RankName(from), " sends data that ", Describe(part_.spec), " does not expect of it"));
  if (message.index < peer.next_in) return;  // a duplicate
  peer.borrowed |= message.borrowed;
  peer.early_bytes += message.payload.size() + kHeadBytes;
  if (peer.early_bytes > kMostEarly * (part_.spec.bytes() + kHeadsAllowance))
    return FailGroup(InvalidArgument(host_->RankName(from), " sends more than ", Describe(part_.spec), " has"));
  const uint32_t index = message.index;
  peer.early.emplace(index, std::move(message));
  if (phase_ == Phase::kRunning) Advance();
}

void Instance::Advance() {
  int from = part_.algorithm->awaited();
  while (from >= 0) {
    Peer& peer = peers_[from];
    const auto it = peer.early.find(peer.next_in);
    if (it == peer.early.end()) {
      if (peer.left) return FailGroup(LeftEarly(from));
      break;
    }
    if (!peer.checked)
      return FailGroup(InvalidArgument(host_->RankName(from), " sends data of ", Describe(part_.spec),
                                       " without a description of it"));
    const Message message = std::move(it->second);
    peer.early.erase(it);
    peer.early_bytes -= std::min(peer.early_bytes, message.payload.size() + kHeadBytes);
    ++peer.next_in;
    if (Status status = Deliver(from, message); !status.ok())
      return FailGroup(WithPrefix(absl::StrCat(host_->RankName(from), ": ", Describe(part_.spec), ": "), status));
    from = part_.algorithm->awaited();
  }
  awaited_.store(from, std::memory_order_relaxed);
  if (from >= 0) return;
  phase_ = Phase::kDraining;
  for (int rank = 0; rank < host_->size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.source && (peer.borrowed || !peer.destination))
      host_->SendTo(rank, net::Bytes::Of(EncodeHead({.kind = MessageKind::kDone, .sequence = sequence_})));
  }
  Drain();
}

Status Instance::Deliver(int from, const Message& message) {
  if (message.shared) {
    Mailbox* const box = host_->MailboxOf(from);
    if (box == nullptr) return InvalidArgument("it shares memory that this rank does not see");
    MR_ASSIGN_OR_RETURN(const char* const data, box->Offered(message.address, message.lent_bytes));
    const Status status = part_.algorithm->OnMessage(Incoming(absl::string_view(data, message.lent_bytes)), *this);
    box->Release(message.address);
    return status;
  }
  if (message.address == 0) return part_.algorithm->OnMessage(Incoming(message.payload), *this);
  auto memory = host_->MemoryOf(from);
  if (memory == nullptr) return InvalidArgument("it lends memory that this rank cannot read");
  return part_.algorithm->OnMessage(Incoming(std::move(memory), message.address, message.lent_bytes), *this);
}

void Instance::Drain() {
  for (int rank = 0; rank < host_->size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.held.empty() && (!AwaitsDone(peer) || peer.done)) continue;
    if (peer.left) return FailGroup(LeftEarly(rank));
    awaited_.store(rank, std::memory_order_relaxed);
    return;
  }
  Finish(absl::OkStatus());
}

void Instance::Finish(Status status) {
  phase_ = Phase::kOver;
  awaited_.store(-1, std::memory_order_relaxed);
  before_.clear();
  peers_.clear();
  for (const char* const slot : slots_) host_->mailroom()->ReturnSlot(slot);
  slots_.clear();
  Done done = std::move(part_.done);
  const bool all_took_part = status.ok() && part_.spec.kind != OperationKind::kBroadcast;
  if (!status.ok() && part_.owner) host_->KeepForReaders(std::move(part_.owner));
  part_ = {};
  host_->Ended(sequence_, all_took_part);
  done(std::move(status));
}

Status Instance::LeftEarly(int rank) const {
  return Unavailable(host_->RankName(rank), " has left the group before the end of ", Describe(part_.spec));
}

void Instance::FailGroup(Status why) {
  phase_ = Phase::kFailing;
  host_->Fail(std::move(why));
}

void Instance::Transmit(int to, Message message, absl::string_view borrowed_bytes, bool is_borrowed) {
  Peer& peer = peers_[to];
  message.sequence = sequence_;
  message.index = peer.next_out++;
  message.shared = is_borrowed && IsStaged(borrowed_bytes) && host_->SeesSlots(to);
  if (message.shared) {
    message.address = host_->mailroom()->Offer(borrowed_bytes.data(), borrowed_bytes.size());
    message.lent_bytes = borrowed_bytes.size();
    if (message.index == 0) message.spec = part_.spec;
    return host_->SendTo(to, net::Bytes::Of(EncodeHead(message)));
  }
  message.borrowed = is_borrowed;
  peer.lent |= is_borrowed;
  if (message.index == 0) message.spec = part_.spec;
  const bool read_here = is_borrowed && host_->ReadsOurs(to);
  if (read_here) {
    message.address = reinterpret_cast<uintptr_t>(borrowed_bytes.data());
    message.lent_bytes = borrowed_bytes.size();
  }
  std::string head = EncodeHead(message);
  net::Bytes bytes;
  if (read_here) {
    bytes = net::Bytes::Of(std::move(head));
  } else if (is_borrowed) {
    bytes = net::Bytes::Of(std::move(head));
    bytes.Append(borrowed_bytes, part_.owner);
  } else {
    absl::StrAppend(&head, borrowed_bytes);
    bytes = net::Bytes::Of(std::move(head));
    bytes.Append(std::move(message.payload));
  }
  // What is lent takes no memory there.
  if (peer.ready || read_here) {
    host_->SendTo(to, std::move(bytes));
  } else {
    peer.held.push_back(std::move(bytes));
  }
}

void Instance::Send(int to, absl::string_view bytes) {
  Transmit(to, {}, bytes, bytes.size() >= kLendFrom || IsStaged(bytes));
}

char* Instance::Stage(size_t size, absl::Span<const int> readers) {
  Mailroom* const room = host_->mailroom();
  if (room == nullptr || size > Mailroom::kSlotBytes) return nullptr;
  if (!std::all_of(readers.begin(), readers.end(), [&](int rank) { return host_->SeesSlots(rank); })) return nullptr;
  char* const slot = room->TakeSlot();
  if (slot != nullptr) slots_.push_back(slot);
  return slot;
}

bool Instance::IsStaged(absl::string_view bytes) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const char* slot) {
    return std::less_equal<>()(slot, bytes.data()) && std::less<>()(bytes.data(), slot + Mailroom::kSlotBytes);
  });
}

void Instance::SendOwned(int to, net::Bytes bytes) {
  Message message;
  message.payload = std::move(bytes);
  Transmit(to, std::move(message), {}, /*is_borrowed=*/false);
}

}  // namespace millrace::collective
