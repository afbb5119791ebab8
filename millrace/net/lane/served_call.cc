#include "millrace/net/lane/served_call.h"

#include <utility>

namespace millrace::net {
namespace {

// Longer error messages are truncated.
constexpr size_t kLongestError = size_t{64} << 10;

// The call as the service holds it. If it is dropped without an answer, the caller gets an error instead of waiting.
class LaneIncomingCall final : public IncomingCall, public IncomingStream {
 public:
  explicit LaneIncomingCall(RefPtr<ServedCall> call) : call_(std::move(call)) {}
  ~LaneIncomingCall() override {
    if (!answered_) call_->Reply(Internal("the server dropped the call without an answer"));
  }

  Bytes& request() override { return call_->request(); }
  absl::Time deadline() const override { return call_->deadline(); }
  std::string peer() const override { return call_->link()->peer(); }
  uint64_t connection() const override { return call_->link()->connection(); }
  bool from_client() const override { return call_->link()->from_client(); }
  CancellationManager* cancellation() override { return call_->cancellation(); }
  RefPtr<ThreadHandover> handover() override { return call_->handover(); }
  bool takes_large_answers() const override { return true; }
  IncomingStream* stream() override { return call_->streams() ? this : nullptr; }
  void OnMessage(MessageHandler handler) override { call_->OnMessage(std::move(handler)); }
  void Send(Bytes message) override { call_->Send(std::move(message)); }
  bool answered() const override { return answered_; }
  void Reply(StatusOr<Bytes> answer) override {
    MR_CHECK(!answered_.exchange(true));
    call_->Reply(std::move(answer));
  }

 private:
  const RefPtr<ServedCall> call_;
  std::atomic<bool> answered_{false};
};

absl::Time DeadlineAfter(Clock* clock, uint64_t micros) {
  constexpr uint64_t kYear = uint64_t{365} * 24 * 3600 * 1000000;
  return micros > 100 * kYear ? absl::InfiniteFuture() : clock->Now() + absl::Microseconds(micros);
}

}  // namespace

ServedCall::ServedCall(RefPtr<ServerLink> link, const FrameHeader& header)
    : link_(std::move(link)),
      id_(header.call),
      method_(header.method),
      streams_((header.flags & kFlagStreams) != 0),
      deadline_(DeadlineAfter(link_->core()->options.clock, header.argument)) {}

void ServedCall::Serve(Received request, EventThread* here) {
  const ThreadHandover::Entry entry(handover_, here);
  const size_t size = request.size;
  LaneEndpoint* const endpoint = link_->endpoint().get();
  const Status fetched = link_->Fetch(&request, here);
  // Before the handler runs: it may keep the request for long, while other calls wait for the credit.
  link_->Consumed(size);
  if (!fetched.ok()) {
    Reply(fetched);
    return link_->Flush();  // the call may have been given up, so nothing was sent
  }
  request_ = request.Take();
  if (!endpoint->BeginHandler()) return Reply(Unavailable("the server is stopping"));
  endpoint->service()->OnCall(method_, std::make_shared<LaneIncomingCall>(ShareRef(this)));
  Flush();
  endpoint->EndHandler();
}

bool ServedCall::PutMessage(Received message) {
  {
    MutexLock lock(&mu_);
    if (!answered_) {
      inbox_.push_back(std::move(message));
      if (delivering_ || handler_ == nullptr) return false;
      delivering_ = true;
      return true;
    }
  }
  link_->Discard(std::move(message));
  return false;
}

void ServedCall::OnMessage(MessageHandler handler) {
  {
    MutexLock lock(&mu_);
    if (answered_) return;
    handler_ = std::move(handler);
    if (inbox_.empty()) return;
    delivering_ = true;
  }
  Deliver(handover_->Here());
}

void ServedCall::Deliver(EventThread* here) {
  const ThreadHandover::Entry entry(handover_, here);
  LaneEndpoint* const endpoint = link_->endpoint().get();
  const bool allowed = endpoint->BeginHandler();
  MessageHandler handler;
  {
    MutexLock lock(&mu_);
    handler = std::move(handler_);
  }
  for (;;) {
    Received message;
    {
      MutexLock lock(&mu_);
      if (answered_ || inbox_.empty()) {
        delivering_ = false;
        if (!answered_) handler_ = std::move(handler);
        break;
      }
      message = std::move(inbox_.front());
      inbox_.pop_front();
    }
    const size_t size = message.size;
    if (const Status fetched = link_->Fetch(&message, here); !fetched.ok()) {
      Cancel(fetched);
    } else if (allowed) {
      handler(message.Take());
    }
    link_->Consumed(size);
  }
  // It may hold the call, so destroy it without the lock.
  handler = nullptr;
  Flush();
  if (allowed) endpoint->EndHandler();
}

void ServedCall::Flush() {
  bool goes_on;
  {
    MutexLock lock(&mu_);
    goes_on = !answered_;
  }
  goes_on ? link_->FlushWithNext() : link_->Flush();
}

void ServedCall::GiveUp() {
  given_up_.store(true, std::memory_order_relaxed);
  Cancel(Cancelled("the caller gave up or is gone"));
}

void ServedCall::Send(Bytes message) {
  {
    MutexLock lock(&mu_);
    if (answered_) return;
  }
  if (!given_up_.load(std::memory_order_relaxed))
    link_->Send({.kind = FrameKind::kMessage, .call = id_}, std::move(message));
}

void ServedCall::Reply(StatusOr<Bytes> answer) {
  std::list<Received> dropped;
  MessageHandler handler;
  {
    MutexLock lock(&mu_);
    answered_ = true;
    dropped.swap(inbox_);
    if (!delivering_) handler = std::move(handler_);
  }
  for (Received& message : dropped) link_->Discard(std::move(message));
  const RefPtr<ServedCall> self = ShareRef(this);  // the table's reference may be the last
  if (link_->Forget(id_)) {
    if (answer.ok()) {
      link_->Send({.kind = FrameKind::kAnswer, .call = id_}, *std::move(answer));
    } else {
      const absl::string_view text = answer.status().message();
      const absl::string_view cut = text.size() > kLongestError ? "... (cut)" : "";
      link_->Send({.kind = FrameKind::kError, .call = id_, .argument = static_cast<uint64_t>(answer.status().code())},
                  Bytes::Of(absl::StrCat(text.substr(0, kLongestError), cut)));
    }
  } else {
    link_->Flush();  // no other frame carries the acknowledgements
  }
  link_->endpoint()->EndCall();
}

}  // namespace millrace::net
