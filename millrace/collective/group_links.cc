// The links of a group: how they are opened and how they end.
#include <algorithm>
#include <utility>

#include "millrace/collective/group_core.h"

namespace millrace::collective {
namespace {

constexpr absl::Duration kLongestRetry = absl::Milliseconds(500);
// What a rank sees of the one that it tells.
constexpr uint8_t kSeesMemory = 1, kSeesMailroom = 2;

// Whether the other rank may still join: it is not there yet, or has not made its group.
bool MayComeLater(const Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

void GroupCore::WantLink(int rank) {
  if (!others_[rank]->link.Want()) return;
  bool left;
  {
    MutexLock lock(&mu_);
    others_[rank]->wanted_since = options_.clock->Now();
    left = others_[rank]->left;
  }
  if (!left && options_.rank < rank) Dial(rank);
}

void GroupCore::Dial(int rank) {
  {
    MutexLock lock(&mu_);
    if (!failed_.ok()) return;
  }
  // First by an ordinary call: a transport that negotiates a faster way does so only with a task that is there.
  others_[rank]->channel->Call(kHelloMethod, Call(), {.timeout = options_.peer_timeout},
                               [weak = weak_from_this(), rank](const StatusOr<net::Bytes>& answer) {
                                 if (const auto self = weak.lock()) self->OnHelloAnswer(rank, answer);
                               });
}

void GroupCore::OnHelloAnswer(int rank, const StatusOr<net::Bytes>& answered) {
  if (answered.ok() && !answered->empty()) return OnAbort(*answered);
  const Status& answer = answered.status();
  absl::Duration retry;
  bool late = false;
  {
    MutexLock lock(&mu_);
    if (!failed_.ok()) return;
    Other& other = *others_[rank];
    retry = other.retry;
    other.retry = std::min(2 * other.retry, kLongestRetry);
    other.known |= answer.ok();
    other.why_absent = std::string(answer.message());
    late = options_.clock->Now() > other.wanted_since + options_.join_timeout;
  }
  if (answer.ok()) {
    return others_[rank]->channel->Prepare([weak = weak_from_this(), rank] {
      if (const auto self = weak.lock()) self->OpenLink(rank);
    });
  }
  if (!MayComeLater(answer)) return Fail(WithPrefix(absl::StrCat(RankName(rank), ": "), answer));
  if (late)
    return Fail(Unavailable(RankName(rank), " did not join within ", absl::FormatDuration(options_.join_timeout), ": ",
                            answer.message()));
  options_.timers->Schedule(retry, [weak = weak_from_this(), rank] {
    if (const auto self = weak.lock()) self->Dial(rank);
  });
}

void GroupCore::OpenLink(int rank) {
  Other& other = *others_[rank];
  if (net::StreamingChannel* const streaming = other.channel->streaming()) {
    auto stream = streaming->Stream(
        kStreamMethod, Call(), {.every_step = true, .handover = handover_},
        [weak = weak_from_this(), rank](const net::Bytes& message) {
          if (const auto self = weak.lock()) self->OnMessage(rank, message);
        },
        [weak = weak_from_this(), rank](const StatusOr<net::Bytes>& answer) {
          if (const auto self = weak.lock()) self->OnLinkEnd(rank, answer.status());
        });
    other.link.OpenStream(std::move(stream));
    // Within a host, large messages are read from the sender's memory directly into place.
    if (!Borrow()) return;
    const net::TransportStatus status = options_.transport->status();
    Return();
    for (const net::PeerStatus& peer : status.peers) {
      if (peer.outgoing && peer.peer == other.channel->address() && peer.kind == "shm") OfferMemory(rank, 0);
    }
    return CheckLeave();
  }
  // The other rank learns that it must make calls as well.
  other.channel->Call(kHelloMethod, net::Bytes::Of(OwnSender(/*by_calls=*/true)), {.timeout = options_.peer_timeout},
                      [weak = weak_from_this(), rank](const StatusOr<net::Bytes>& answer) {
                        const auto self = weak.lock();
                        if (self == nullptr) return;
                        if (!answer.ok()) return self->OnLinkEnd(rank, answer.status());
                        if (!answer->empty()) return self->OnAbort(*answer);
                        self->OpenByCalls(rank);
                      });
}

void GroupCore::OfferMemory(int rank, uint8_t sees) {
  std::string text = EncodeHead({.kind = MessageKind::kMemory});
  text.push_back(static_cast<char>(sees));
  text += EncodeOffer(OwnMemory());
  if (const Mailroom* const room = OpenMailroom(rank); room != nullptr) text += EncodeMailroomOffer(room->offer());
  others_[rank]->link.Send(net::Bytes::Of(std::move(text)));
}

void GroupCore::OnMemory(int rank, const net::Bytes& payload) {
  net::BytesReader reader(payload);
  uint8_t sees = 0;
  MemoryOffer offer;
  MailroomOffer mail;
  if (!reader.Read(&sees, 1) || sees > (kSeesMemory | kSeesMailroom) || !ReadOffer(&reader, &offer) ||
      (reader.remaining() > 0 && !ReadMailroomOffer(&reader, &mail)))
    return Fail(InvalidArgument(RankName(rank), " offers memory in a way that cannot be read"));
  if ((sees & kSeesMemory) != 0) others_[rank]->reads_ours.store(true, std::memory_order_release);
  if ((sees & kSeesMailroom) != 0) others_[rank]->sees_slots.store(true, std::memory_order_release);
  {
    MutexLock lock(&mu_);
    if (std::exchange(others_[rank]->memory_tried, true)) return;
  }
  auto memory = LentMemory::Open(offer);
  StatusOr<std::unique_ptr<Mailbox>> mailbox = Unavailable("it has no mailroom");
  if (memory.ok() && mail.process != 0) mailbox = Mailbox::Open(mail, size(), this->rank());
  const uint8_t seen = (memory.ok() ? kSeesMemory : 0) | (mailbox.ok() ? kSeesMailroom : 0);
  {
    MutexLock lock(&mu_);
    if (memory.ok()) others_[rank]->memory = *memory;
    if (mailbox.ok()) others_[rank]->own_mailbox = *std::move(mailbox);
    others_[rank]->mailbox.store(others_[rank]->own_mailbox.get(), std::memory_order_release);
  }
  OfferMemory(rank, seen);
}

std::shared_ptr<const LentMemory> GroupCore::MemoryOf(int rank) const {
  MutexLock lock(&mu_);
  return others_[rank]->memory;
}

void GroupCore::KeepForReaders(RefPtr<const RefCounted> owner) {
  options_.timers->Schedule(2 * options_.peer_timeout, [owner = std::move(owner)] {});
}

void GroupCore::OpenByCalls(int rank) {
  others_[rank]->link.OpenCalls([weak = weak_from_this(), rank](net::Bytes message) {
    if (const auto self = weak.lock()) self->SendByCall(rank, std::move(message));
  });
  CheckLeave();
}

void GroupCore::SendByCall(int rank, net::Bytes message) {
  {
    MutexLock lock(&mu_);
    ++sends_;
  }
  net::Bytes request = Call();
  request.Append(std::move(message));
  others_[rank]->channel->Call(kSendMethod, std::move(request), {.every_step = true, .handover = handover_},
                               [weak = weak_from_this(), rank](const StatusOr<net::Bytes>& answer) {
                                 const auto self = weak.lock();
                                 if (self == nullptr) return;
                                 if (!answer.ok()) self->OnLinkEnd(rank, answer.status());
                                 {
                                   MutexLock lock(&self->mu_);
                                   --self->sends_;
                                 }
                                 self->CheckLeave();
                               });
}

net::Bytes GroupCore::OnHello(const Sender& sender) {
  {
    MutexLock lock(&mu_);
    if (!failed_.ok()) return net::Bytes::Of(EncodeStatus(failed_));
  }
  if (sender.by_calls) OpenByCalls(static_cast<int>(sender.rank));
  return {};
}

void GroupCore::OnStream(int from, std::shared_ptr<net::IncomingCall> call) {
  if (call->stream() == nullptr) return call->Reply(InvalidArgument("the call does not stream"));
  CancellationManager* const cancellation = call->cancellation();
  if (!others_[from]->link.OpenServed(call)) {
    Status failed;
    {
      MutexLock lock(&mu_);
      failed = failed_;
    }
    if (failed.ok()) return call->Reply(AlreadyExists(RankName(from), " has opened a stream before"));
    call->stream()->Send(net::Bytes::Of(absl::StrCat(EncodeHead({.kind = MessageKind::kAbort}), EncodeStatus(failed))));
    return call->Reply(net::Bytes());
  }
  call->stream()->OnMessage([weak = weak_from_this(), from](const net::Bytes& message) {
    if (const auto self = weak.lock()) self->OnMessage(from, message);
  });
  const bool registered = cancellation->Register(cancellation->NewToken(), [weak = weak_from_this(), from] {
    if (const auto self = weak.lock()) self->OnLinkEnd(from, Unavailable("the connection was lost"));
  });
  if (!registered) return OnLinkEnd(from, Unavailable("the connection was lost"));
  CheckLeave();
}

void GroupCore::OnLinkEnd(int rank, const Status& why) {
  TakeMail();  // what it has left before
  bool expected;
  {
    MutexLock lock(&mu_);
    Other& other = *others_[rank];
    other.ended = true;
    expected = other.left || leave_sent_ || closed_ || !failed_.ok();
  }
  if (expected) {
    others_[rank]->link.Close({});
    return CheckLeave();
  }
  Fail(Unavailable(RankName(rank), " is lost: ", why.ok() ? "it ended the connection" : why.message()));
}

// ---- Leaving

void GroupCore::OnLeft(int rank) {
  TakeMail();  // what it has left before
  std::vector<std::shared_ptr<Instance>> instances;
  bool leaving;
  {
    MutexLock lock(&mu_);
    others_[rank]->left = true;
    leaving = leave_sent_;
    if (leaving) others_[rank]->ended = true;
    for (const auto& [sequence, running] : running_) instances.push_back(running.instance);
  }
  for (const auto& instance : instances) instance->PeerLeft(rank);
  if (!leaving) return;
  // CheckLeave may be about to send this; twice does no harm.
  others_[rank]->link.Close(net::Bytes::Of(EncodeHead({.kind = MessageKind::kLeave})));
  CheckLeave();
}

void GroupCore::Leave(Instance::Done done) {
  Instance::Part part;
  part.spec = {.kind = OperationKind::kBarrier, .key = "leave", .algorithm = AlgorithmKind::kTree};
  part.algorithm = NewTreeAllReduce({.rank = rank(), .size = size()}, {}, 0);
  part.done = [self = shared_from_this(), done = std::move(done)](const Status& status) mutable {
    {
      MutexLock lock(&self->mu_);
      self->leaving_ = true;
      self->leavers_.push_back(std::move(done));
    }
    self->CheckLeave();
  };
  Start(std::move(part), absl::InfiniteDuration());
}

void GroupCore::CheckLeave() {
  std::vector<Instance::Done> done;
  std::vector<int> tell, close;
  Status status;
  {
    MutexLock lock(&mu_);
    status = failed_;
    if (!leaving_ || (status.ok() ? sends_ : aborts_) > 0) return;
    bool over = !status.ok();
    for (int rank = 0; !over && rank < size(); ++rank) {
      // Messages wait for this link to open.
      if (others_[rank]->link.wanted() && !others_[rank]->link.open()) return;
    }
    if (!over && !leave_sent_) {
      leave_sent_ = true;
      for (int rank = 0; rank < size(); ++rank) {
        if (rank == options_.rank || !others_[rank]->link.open()) continue;
        tell.push_back(rank);
        if (others_[rank]->left) close.push_back(rank);
      }
    }
    if (!over) {
      over = true;
      for (int rank = 0; rank < size(); ++rank) {
        const Other& other = *others_[rank];
        over &= rank == options_.rank || !other.link.open() || other.ended;
      }
    }
    if (over) done.swap(leavers_);
  }
  for (const int rank : tell) others_[rank]->link.Send(net::Bytes::Of(EncodeHead({.kind = MessageKind::kLeave})));
  // These have taken leave already.
  for (const int rank : close) {
    {
      MutexLock lock(&mu_);
      others_[rank]->ended = true;
    }
    others_[rank]->link.Close({});
  }
  if (!close.empty()) return CheckLeave();
  for (Instance::Done& leaver : done) leaver(status);
}

}  // namespace millrace::collective
