#include "millrace/net/lane/outgoing_call.h"

#include <algorithm>
#include <utility>

#include "millrace/base/affinity.h"
#include "millrace/net/lane/client_link.h"

namespace millrace::net {

LaneOutgoingCall::LaneOutgoingCall(RefPtr<ClientLink> link, std::shared_ptr<Channel> channel, const std::string& method,
                                   const CallOptions& options, MessageHandler on_message, Channel::Done done)
    : link_(std::move(link)),
      channel_(std::move(channel)),
      method_(method),
      timeout_(options.timeout),
      handover_(options.handover),
      on_message_(std::move(on_message)),
      done_(std::move(done)) {}

void LaneOutgoingCall::Refuse() {
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  Channel::Done done = std::move(done_);
  done(Cancelled(link_->address(), ": ", method_, " was called while the transport was closed"));
}

void LaneOutgoingCall::Start(int method, bool streams, Bytes request) {
  FrameHeader header{.kind = FrameKind::kCall,
                     .flags = streams ? kFlagStreams : uint8_t{0},
                     .method = static_cast<uint16_t>(method),
                     .call = id_};
  header.argument = kNoTimeout;
  const absl::Time begun = link_->core()->options.clock->Now();
  if (timeout_ != absl::InfiniteDuration())
    header.argument = static_cast<uint64_t>(std::max<int64_t>(absl::ToInt64Microseconds(timeout_), 0));
  WatchLink();
  // If the link is over, so is the call, because it is in the link's table.
  link_->Send(header, std::move(request));
  bool ended;
  {
    MutexLock lock(&mu_);
    sent_ = true;
    ended = ended_;
    if (!ended && timeout_ != absl::InfiniteDuration()) {
      has_deadline_ = true;
      deadline_ = link_->core()->deadlines.Add(begun + timeout_, [self = ShareRef(this)] {
        self->End(DeadlineExceeded(self->link_->address(), ": no answer to ", self->method_, " within ",
                                   absl::FormatDuration(self->timeout_)));
        self->TellGivenUp();
      });
    }
  }
  if (ended) TellGivenUp();  // unless it was answered
}

void LaneOutgoingCall::Send(Bytes message) {
  {
    MutexLock lock(&mu_);
    if (ended_) return;
  }
  WatchLink();
  link_->Send({.kind = FrameKind::kMessage, .method = static_cast<uint16_t>(CurrentCore() + 1), .call = id_},
              std::move(message));
}

void LaneOutgoingCall::WatchLink() {
  EventThread* const here = handover_ ? handover_->Here() : nullptr;
  if (here != nullptr && here->awaits_answer()) link_->WatchHere(here->watch());
}

void LaneOutgoingCall::Cancel() {
  End(Cancelled(link_->address(), ": the call of ", method_, " was cancelled"));
  TellGivenUp();
}

void LaneOutgoingCall::TellGivenUp() {
  {
    MutexLock lock(&mu_);
    if (!sent_) return;  // Start sends the cancellation, once the other side knows the call
  }
  if (!link_->Forget(id_)) return;  // the call has already ended
  if (!link_->DropQueued(id_)) link_->Send({.kind = FrameKind::kCancel, .call = id_});
}

void LaneOutgoingCall::End(Status why) {
  std::list<Arrival> dropped;
  bool deliver = false;
  {
    MutexLock lock(&mu_);
    if (ended_) return;
    ended_ = true;
    dropped.swap(inbox_);
    inbox_.push_back({.message = {}, .status = std::move(why), .last = true});
    deliver = !delivering_;
    delivering_ = true;
  }
  for (Arrival& arrival : dropped) link_->Discard(std::move(arrival.message));
  if (deliver) link_->core()->loop->Post([self = ShareRef(this)](EventThread* here) { self->Deliver(here); });
}

bool LaneOutgoingCall::Put(Arrival arrival) {
  const bool last = arrival.last;
  {
    MutexLock lock(&mu_);
    if (!ended_) {
      ended_ = last;
      inbox_.push_back(std::move(arrival));
      if (delivering_) return false;
      delivering_ = true;
      return true;
    }
  }
  link_->Discard(std::move(arrival.message));
  return false;
}

bool LaneOutgoingCall::PutMessage(Received message) {
  return Put({.message = std::move(message), .status = {}, .last = false});
}
bool LaneOutgoingCall::PutAnswer(Received message) {
  return Put({.message = std::move(message), .status = {}, .last = true});
}
bool LaneOutgoingCall::PutError(Status status) {
  return Put({.message = {}, .status = std::move(status), .last = true});
}

void LaneOutgoingCall::Deliver(EventThread* here) {
  const ThreadHandover::Entry entry(handover_, here);
  for (;;) {
    Arrival arrival;
    {
      MutexLock lock(&mu_);
      if (inbox_.empty()) {
        delivering_ = false;
        break;
      }
      arrival = std::move(inbox_.front());
      inbox_.pop_front();
    }
    const size_t size = arrival.message.size;
    Status status = std::move(arrival.status);
    if (status.ok()) status = WithPrefix(absl::StrCat(link_->address(), ": "), link_->Fetch(&arrival.message, here));
    if (!arrival.last) {
      if (!status.ok()) {
        End(std::move(status));
      } else if (on_message_ != nullptr) {
        on_message_(arrival.message.Take());
      }
      link_->Consumed(size);
      continue;
    }
    if (status.ok()) {
      Finish(arrival.message.Take());
    } else {
      Finish(std::move(status));
    }
    link_->Consumed(size);
    return link_->Flush();
  }
  link_->FlushWithNext();
}

void LaneOutgoingCall::Finish(StatusOr<Bytes> result) {
  bool has_deadline;
  LaneDeadlines::Id deadline;
  {
    MutexLock lock(&mu_);
    has_deadline = has_deadline_;
    deadline = deadline_;
  }
  if (has_deadline) link_->core()->deadlines.Remove(deadline);
  // Moved out, so that what they hold is released before the transport considers the call finished.
  Channel::Done done = std::move(done_);
  MessageHandler on_message = std::move(on_message_);
  done(std::move(result));
  done = nullptr;
  on_message = nullptr;
  channel_.reset();
  link_->core()->calls.Remove(this);
}

}  // namespace millrace::net
