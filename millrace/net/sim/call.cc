#include "millrace/net/sim/call.h"

#include <algorithm>
#include <utility>

namespace millrace::net {

using Kind = SimMessage::Kind;
using State = SimNetwork::State;

SimServedCall::SimServedCall(std::shared_ptr<SimNetwork::State> state, std::shared_ptr<SimEndpoint> endpoint,
                             RefPtr<SimCall> call, Bytes request)
    : state_(std::move(state)),
      endpoint_(std::move(endpoint)),
      call_(std::move(call)),
      number_(state_->next_served++),
      request_(std::move(request)) {
  endpoint_->open[number_] = this;
}

SimServedCall::~SimServedCall() {
  if (!answered_) Reply(Internal("the server dropped the call without an answer"));
}

absl::Time SimServedCall::deadline() const {
  if (call_->deadline() == absl::InfiniteFuture()) return absl::InfiniteFuture();
  return state_->loop.OnClockOf(endpoint_->host, call_->deadline());
}
std::string SimServedCall::peer() const { return absl::StrCat("sim:", call_->client()); }

IncomingStream* SimServedCall::stream() { return call_->streams() ? this : nullptr; }

void SimServedCall::OnMessage(MessageHandler handler) {
  if (answered_) return;
  on_message_ = std::make_shared<MessageHandler>(std::move(handler));
  while (!early_.empty() && !answered_) {
    Bytes message = std::move(early_.front());
    early_.pop_front();
    Take(std::move(message));
  }
}

void SimServedCall::Take(Bytes message) {
  if (answered_) return;
  if (on_message_ == nullptr) return early_.push_back(std::move(message));
  const auto handler = on_message_;  // it may answer
  (*handler)(std::move(message));
}

void SimServedCall::Send(Bytes message) {
  if (!answered_) call_->SendToCaller(std::move(message));
}

void SimServedCall::Reply(StatusOr<Bytes> answer) {
  MR_CHECK(!answered_);
  answered_ = true;
  on_message_ = nullptr;
  early_.clear();
  endpoint_->open.erase(number_);
  call_->SendAnswer(std::move(answer));
}

SimCall::SimCall(std::shared_ptr<SimNetwork::State> state, std::string client, std::string address, std::string method,
                 absl::Duration timeout, Channel::Done done)
    : state_(std::move(state)),
      id_(state_->next_call++),
      client_(std::move(client)),
      address_(std::move(address)),
      method_(std::move(method)),
      timeout_(timeout),
      deadline_(timeout == absl::InfiniteDuration() ? absl::InfiniteFuture() : state_->loop.now() + timeout),
      done_(std::move(done)) {}

void SimCall::Start(Bytes request) {
  state_->calls[id_] = this;
  if (const auto it = state_->hosts.find(address_); it != state_->hosts.end()) server_ = it->second;
  if (timeout_ != absl::InfiniteDuration()) {
    timer_ = state_->loop.At(deadline_, client_, [self = ShareRef(this)] {
      self->timer_ = 0;
      self->GiveUp(DeadlineExceeded(self->address_, ": no answer to ", self->method_, " within ",
                                    absl::FormatDuration(self->timeout_)));
    });
  }
  if (state_->dead.contains(client_)) {
    state_->loop.After(absl::ZeroDuration(), client_, [self = ShareRef(this)] { self->Break(); });
    return;
  }
  const size_t size = request.size();
  Transmit(Kind::kRequest, /*to_server=*/true, size,
           [self = ShareRef(this), request = std::move(request)] { self->Arrive(request); });
}

SimCall::~SimCall() { state_->streaming.erase(this); }

void SimCall::DropWhatIsOnTheWay() {
  const auto to_server = std::exchange(to_server_.on_the_way, {}), to_caller = std::exchange(to_caller_.on_the_way, {});
}

void SimCall::Stream(MessageHandler on_message) {
  streams_ = true;
  state_->streaming.insert(this);
  on_message_ = std::make_shared<MessageHandler>(std::move(on_message));
}

void SimCall::Transmit(Kind kind, bool to_server, size_t bytes, std::function<void()> deliver) {
  const SimMessage message{kind, id_, to_server ? client_ : server_, to_server ? server_ : client_, method_, bytes};
  const auto lost = [self = ShareRef(this)] { self->Break(); };
  if (!streams()) {
    state_->Send(message, std::move(deliver), lost);
    return;
  }
  Direction& direction = to_server ? to_server_ : to_caller_;
  if (direction.stalled) return;
  direction.on_the_way.push_back([state = state_.get(), text = State::Describe(message), deliver = std::move(deliver)] {
    state->Log(text);
    deliver();
  });
  const auto arrive = [self = ShareRef(this), &direction] {
    if (direction.on_the_way.empty()) return;
    const std::function<void()> first = std::move(direction.on_the_way.front());
    direction.on_the_way.pop_front();
    first();
  };
  if (!state_->Send(message, arrive, lost, /*once=*/true)) {
    if (!direction.on_the_way.empty()) direction.on_the_way.pop_back();
    direction.stalled = true;
  }
}

void SimCall::Send(Bytes message) {
  if (broken_ || finished_) return;
  const size_t size = message.size();
  Transmit(Kind::kMessage, /*to_server=*/true, size, [self = ShareRef(this), message = std::move(message)] {
    if (self->broken_) return;
    for (const auto& weak : self->served_) {
      if (const auto served = weak.lock()) return served->Take(message);
    }
  });
}

void SimCall::SendToCaller(Bytes message) {
  if (broken_) return;
  const size_t size = message.size();
  Transmit(Kind::kMessage, /*to_server=*/false, size, [self = ShareRef(this), message = std::move(message)] {
    if (self->broken_ || self->finished_) return;
    const auto handler = self->on_message_;  // it may end the call
    (*handler)(message);
  });
}

void SimCall::Arrive(const Bytes& request) {
  if (broken_) return;
  const auto it = state_->endpoints.find(address_);
  if (it == state_->endpoints.end()) {
    state_->loop.After(state_->Delay(), client_, [self = ShareRef(this)] {
      self->Finish(Unavailable(self->address_, ": connection refused: nothing listens there"));
    });
    return;
  }
  const std::shared_ptr<SimEndpoint> endpoint = it->second;
  server_ = endpoint->host;
  const auto& methods = endpoint->service->methods();
  const auto method = std::find(methods.begin(), methods.end(), method_);
  if (method == methods.end()) return SendAnswer(Unimplemented("this server has no method ", method_));
  auto served = std::make_shared<SimServedCall>(state_, endpoint, ShareRef(this), request);
  served_.push_back(served);
  if (timeout_ != absl::InfiniteDuration()) {
    state_->loop.At(deadline_, server_, [weak = std::weak_ptr(served)] {
      if (auto served = weak.lock()) served->cancellation()->StartCancel(Cancelled("the caller's deadline has passed"));
    });
  }
  endpoint->service->OnCall(static_cast<int>(method - methods.begin()), std::move(served));
  // The cancellation has overtaken the request, or this is a duplicate of a request that was answered.
  if (cancelled_) {
    CancelServed(Cancelled("the caller gave up or is gone"));
  } else if (answered_) {
    LetGoOfCopies();
  }
}

void SimCall::LetGoOfCopies() {
  const bool open = std::any_of(served_.begin(), served_.end(), [](const auto& weak) {
    const auto served = weak.lock();
    return served != nullptr && !served->answered();
  });
  if (!open) return;
  state_->loop.After(state_->Delay(), server_,
                     [self = ShareRef(this)] { self->CancelServed(Cancelled("the caller has its answer")); });
}

void SimCall::SendAnswer(StatusOr<Bytes> answer) {
  if (broken_) return;
  const size_t size = answer.ok() ? answer->size() : 0;
  Transmit(Kind::kAnswer, /*to_server=*/false, size, [self = ShareRef(this), answer = std::move(answer)] {
    if (self->broken_) return;
    self->answered_ = true;
    self->LetGoOfCopies();
    self->Finish(answer);
  });
}

void SimCall::Cancel() { GiveUp(Cancelled(address_, ": the call of ", method_, " was cancelled")); }

void SimCall::GiveUp(Status why) {
  if (finished_) return;
  state_->loop.After(absl::ZeroDuration(), client_, [self = ShareRef(this), why] { self->Finish(why); });
  if (broken_ || server_.empty()) return;
  Transmit(Kind::kCancel, /*to_server=*/true, 0, [self = ShareRef(this)] {
    if (self->broken_) return;
    self->cancelled_ = true;
    self->CancelServed(Cancelled("the caller gave up or is gone"));
  });
}

void SimCall::CancelServed(Status why) {
  const auto served = std::move(served_);
  served_.clear();
  for (const auto& weak : served) {
    if (auto call = weak.lock(); call != nullptr && !call->answered()) call->cancellation()->StartCancel(why);
  }
}

void SimCall::Break() {
  if (broken_) return;
  Reset("");
}

void SimCall::Reset(const std::string& host) {
  if (broken_) return;
  broken_ = true;
  const auto delay = [&](const std::string& end) { return end == host ? absl::ZeroDuration() : state_->Delay(); };
  state_->loop.After(delay(client_), client_, [self = ShareRef(this)] {
    self->Finish(Unavailable(self->address_, ": the connection was lost"));
  });
  if (server_.empty()) return;
  state_->loop.After(delay(server_), server_,
                     [self = ShareRef(this)] { self->CancelServed(Cancelled("the caller gave up or is gone")); });
}

void SimCall::Abandon() {
  GiveUp(Cancelled("the transport was closed"));
  Finish(Cancelled(address_, ": the call of ", method_, " was cancelled by the end of its transport"));
}

void SimCall::Finish(StatusOr<Bytes> result) {
  if (finished_) return;
  finished_ = true;
  if (timer_ != 0) state_->loop.Remove(std::exchange(timer_, 0));
  state_->Log(
      absl::StrCat("end #", id_, " ", client_, " ", method_, ": ", absl::StatusCodeToString(result.status().code())));
  const RefPtr<SimCall> self = ShareRef(this);
  state_->calls.erase(id_);
  Channel::Done done = std::move(done_);
  on_message_ = nullptr;
  done(std::move(result));
}

}  // namespace millrace::net
