#include "millrace/net/inproc/call.h"

#include <utility>

namespace millrace::net {
namespace {

// The call as the service holds it. If it is dropped without an answer, the caller gets an error instead of waiting.
class InprocIncomingCall final : public IncomingCall, public IncomingStream {
 public:
  explicit InprocIncomingCall(RefPtr<InprocCall> call) : call_(std::move(call)) {}
  ~InprocIncomingCall() override {
    if (!answered_) call_->Answer(Internal("the server dropped the call without an answer"));
  }

  Bytes& request() override { return call_->request(); }
  absl::Time deadline() const override { return call_->deadline(); }
  std::string peer() const override { return "inproc"; }
  CancellationManager* cancellation() override { return call_->cancellation(); }
  IncomingStream* stream() override { return call_->streams() ? this : nullptr; }
  void OnMessage(MessageHandler handler) override { call_->OnMessage(std::move(handler)); }
  void Send(Bytes message) override { call_->SendToCaller(std::move(message)); }
  bool answered() const override { return answered_; }
  void Reply(StatusOr<Bytes> answer) override {
    MR_CHECK(!answered_.exchange(true));
    call_->Answer(std::move(answer));
  }

 private:
  const RefPtr<InprocCall> call_;
  std::atomic<bool> answered_{false};
};

}  // namespace

InprocCall::InprocCall(const InprocTransportOptions& options, CallsInFlight* in_flight, std::string address,
                       std::string method, Bytes request, absl::Duration timeout, Channel::Done done)
    : options_(options),
      in_flight_(in_flight),
      address_(std::move(address)),
      method_(std::move(method)),
      timeout_(timeout),
      deadline_(timeout == absl::InfiniteDuration() ? absl::InfiniteFuture() : options.clock->Now() + timeout),
      request_(std::move(request)),
      done_(std::move(done)) {}

void InprocCall::Stream(MessageHandler on_message) {
  streams_ = true;
  to_caller_.SetHandler(std::move(on_message), options_.scheduler, ShareRef(this));
}

void InprocCall::Send(Bytes message) { to_server_.Add(std::move(message), options_.scheduler, ShareRef(this)); }

void InprocCall::OnMessage(OrderedMessages::Handler handler) {
  to_server_.SetHandler(std::move(handler), options_.scheduler, ShareRef(this));
}

void InprocCall::SendToCaller(Bytes message) { to_caller_.Add(std::move(message), options_.scheduler, ShareRef(this)); }

void InprocCall::Start() {
  if (!in_flight_->Add(this)) {
    done_(Cancelled(address_, ": ", method_, " was called while the transport was closed"));
    return;
  }
  endpoint_ = options_.network->Find(address_);
  if (endpoint_ == nullptr) return Finish(Unavailable(address_, ": connection refused: nothing listens there"));
  const int method = endpoint_->MethodIndex(method_);
  if (method < 0) return Finish(Unimplemented(address_, ": there is no method ", method_));
  if (timeout_ != absl::InfiniteDuration()) {
    timer_ = options_.timers->Schedule(timeout_, [self = ShareRef(this)] {
      self->timer_ = 0;  // a timer cannot wait for itself
      self->GiveUp(DeadlineExceeded(self->address_, ": no answer to ", self->method_, " within ",
                                    absl::FormatDuration(self->timeout_)));
    });
  }
  if (!endpoint_->Begin(this)) return Finish(Unavailable(address_, ": connection refused: the server is stopping"));
  options_.scheduler->Schedule([self = ShareRef(this), method] { self->Serve(method); });
}

void InprocCall::Serve(int method) {
  endpoint_->service()->OnCall(method, std::make_shared<InprocIncomingCall>(ShareRef(this)));
  EndServerPart();
}

void InprocCall::Answer(StatusOr<Bytes> answer) {
  if (streams_) to_server_.End(/*drop=*/true, nullptr, options_.scheduler, ShareRef(this));
  Finish(std::move(answer));
  EndServerPart();
}

void InprocCall::EndServerPart() {
  if (server_parts_.fetch_sub(1, std::memory_order_acq_rel) == 1) endpoint_->End(this);
}

void InprocCall::Cancel() { GiveUp(Cancelled(address_, ": the call of ", method_, " was cancelled")); }

void InprocCall::GiveUp(Status why) {
  if (finished_) return;
  Finish(std::move(why), /*gave_up=*/true);
  options_.scheduler->Schedule(
      [self = ShareRef(this)] { self->cancellation_.StartCancel(Cancelled("the caller gave up or is gone")); });
}

void InprocCall::Finish(StatusOr<Bytes> result, bool gave_up) {
  if (finished_.exchange(true)) return;
  if (const TimerQueue::Id timer = timer_.exchange(0); timer != 0) options_.timers->Cancel(timer);
  auto deliver = [self = ShareRef(this), result = std::move(result)]() mutable { self->Deliver(std::move(result)); };
  if (streams_) {
    to_caller_.End(gave_up, std::move(deliver), options_.scheduler, ShareRef(this));
  } else {
    options_.scheduler->Schedule(std::move(deliver));
  }
}

void InprocCall::Deliver(StatusOr<Bytes> result) {
  Channel::Done done = std::move(done_);
  done(std::move(result));
  done = nullptr;
  in_flight_->Remove(this);
}

}  // namespace millrace::net
