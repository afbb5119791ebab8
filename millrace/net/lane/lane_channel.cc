#include "millrace/net/lane/lane_channel.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/log.h"
#include "millrace/net/lane/medium.h"
#include "millrace/net/lane/sockets.h"

namespace millrace::net {

LaneChannel::LaneChannel(LaneCore* core, ThreadGroup* dialers, std::shared_ptr<Channel> setup)
    : Channel(setup->address()),
      core_(core),
      dialers_(dialers),
      setup_(std::move(setup)),
      retry_(core->options.first_retry) {}

LaneChannel::~LaneChannel() { Close(); }

void LaneChannel::Close() {
  RefPtr<ClientLink> link;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    link = std::move(link_);
  }
  if (link) link->End(Cancelled("nobody uses the channel any more"));
  EndPreparations();
}

void LaneChannel::Prepare(absl::AnyInvocable<void()> done) {
  Link();
  {
    MutexLock lock(&mu_);
    if (dialing_ && !closed_) {
      preparing_.push_back(std::move(done));
      done = nullptr;
    }
  }
  if (done != nullptr) return done();
  core_->deadlines.Add(core_->options.clock->Now() + core_->options.prepare_timeout, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->core_->loop->Post([self](EventThread*) { self->EndPreparations(); });
  });
}

void LaneChannel::EndPreparations() {
  std::vector<absl::AnyInvocable<void()>> ready;
  {
    MutexLock lock(&mu_);
    ready.swap(preparing_);
  }
  for (auto& done : ready) done();
}

RefPtr<OutgoingCall> LaneChannel::Call(const std::string& method, Bytes request, const CallOptions& options,
                                       Done done) {
  if (options.every_step) {
    if (const RefPtr<ClientLink> link = Link()) {
      MessageHandler no_messages;
      const int index = link->MethodIndex(method);
      if (index >= 0) {
        if (auto call = link->Call(index, request, options, shared_from_this(), /*streams=*/false, no_messages, done))
          return call;
      }
    }
  }
  return setup_->Call(method, std::move(request), options, std::move(done));
}

StreamingChannel* LaneChannel::streaming() {
  MutexLock lock(&mu_);
  return link_ && link_->takes_calls() ? this : nullptr;
}

RefPtr<OutgoingStream> LaneChannel::Stream(const std::string& method, Bytes request, const CallOptions& options,
                                           MessageHandler on_message, CallDone done) {
  if (const RefPtr<ClientLink> link = Link()) {
    const int index = link->MethodIndex(method);
    if (index < 0) {
      done(Unimplemented(address(), ": there is no method ", method));
      return {};
    }
    if (auto call = link->Call(index, request, options, shared_from_this(), /*streams=*/true, on_message, done))
      return call;
  }
  done(Unavailable(address(), ": the lane that calls could stream over was lost"));
  return {};
}

RefPtr<ClientLink> LaneChannel::Link() {
  {
    MutexLock lock(&mu_);
    if (link_) return link_;
    if (dialing_ || closed_ || core_->options.kind == LaneKind::kGrpc || core_->options.clock->Now() < next_attempt_)
      return nullptr;
    dialing_ = true;
  }
  AskForOffer();
  return nullptr;
}

void LaneChannel::AskForOffer() {
  LaneOfferRequest request;
  request.set_version(kLaneVersion);
  bool failed;
  {
    MutexLock lock(&mu_);
    failed = !why_.empty();  // perhaps a lane within the host did, for which this would ask again
  }
  if (!failed && UnixMedium()->Allowed(core_->options).ok()) {
    request.set_host(HostIdentity());
    request.set_user(geteuid());
  }
  setup_->Call(kOfferMethod, Serialize(request), {.timeout = core_->options.handshake_timeout},
               [self = shared_from_this()](StatusOr<Bytes> answer) { self->OnOffer(std::move(answer)); });
}

void LaneChannel::OnOffer(StatusOr<Bytes> answer) {
  LaneOffer offer;
  Status status = answer.ok() ? Parse(*answer, &offer) : answer.status();
  if (status.ok()) {
    if (dialers_->Start([self = shared_from_this(), offer] { self->Dial(offer); })) return;
    status = ResourceExhausted("there are no threads left");
  }
  const bool has_none = absl::IsUnimplemented(status);
  // If the peer is unreachable, the calls themselves report it.
  Failed(has_none ? Unimplemented("the peer has no step lanes") : status, /*worth_a_word=*/answer.ok());
}

void LaneChannel::Dial(const LaneOffer& offer) {
  const absl::Time deadline = Clock::Real()->Now() + core_->options.handshake_timeout;
  StatusOr<RefPtr<ClientLink>> link =
      ClientLink::Dial(core_, address(), offer, deadline, counters_, [weak = weak_from_this()](const Status& why) {
        if (const auto self = weak.lock()) self->Down(why);
      });
  if (link.ok()) {
    Up(*std::move(link));
  } else {
    Failed(link.status(), /*worth_a_word=*/!absl::IsCancelled(link.status()));
  }
}

void LaneChannel::Up(RefPtr<ClientLink> link) {
  bool closed;
  bool ended = false;
  std::string say;
  {
    MutexLock lock(&mu_);
    dialing_ = false;
    closed = closed_;
    ended = link->over();
    if (!closed && !ended) {
      link_ = link;
      retry_ = core_->options.first_retry;
      why_ = link->why_not_better();
      // Do not log what the user requested, nor that another host cannot be reached over shared memory.
      const LaneKind wanted = core_->options.kind;
      const bool expected =
          !link->medium().within_host() && (wanted == link->medium().kind() || wanted == LaneKind::kAuto);
      if (!why_.empty() && !expected && why_ != logged_) say = logged_ = why_;
    }
  }
  if (closed) return link->End(Cancelled("nobody uses the channel any more"));
  if (!say.empty())
    MR_LOG(Warning, "the step lane to ", address(), " is of kind ", link->medium().name(),
           " and could be faster: ", say);
  if (ended) return Failed(Unavailable("the connection ended at once"), /*worth_a_word=*/true);
  EndPreparations();
}

void LaneChannel::Down(const Status& why) {
  RefPtr<ClientLink> gone;  // released without the lock
  {
    MutexLock lock(&mu_);
    if (link_ && link_->over()) gone = std::move(link_);
  }
  if (gone) Failed(why, /*worth_a_word=*/!absl::IsCancelled(why));  // a stopping server ends with CANCELLED
}

void LaneChannel::Failed(const Status& why, bool worth_a_word) {
  std::string say;
  {
    MutexLock lock(&mu_);
    dialing_ = false;
    why_ = std::string(why.message());
    next_attempt_ = core_->options.clock->Now() + (absl::IsUnimplemented(why) ? core_->options.no_lane_retry : retry_);
    retry_ = std::min(2 * retry_, core_->options.last_retry);
    if (worth_a_word && !closed_ && why_ != logged_) say = logged_ = why_;
  }
  if (!say.empty()) MR_LOG(Warning, "no step lane to ", address(), " for now, its calls go over gRPC: ", say);
  EndPreparations();
}

PeerStatus LaneChannel::status() const {
  PeerStatus status;
  status.peer = address();
  status.outgoing = true;
  {
    MutexLock lock(&mu_);
    status.kind = link_ ? std::string(link_->medium().name()) : "grpc";
    status.why_not_better = why_;
  }
  status.bytes_sent = counters_->bytes_sent.load(std::memory_order_relaxed);
  status.bytes_received = counters_->bytes_received.load(std::memory_order_relaxed);
  status.calls = counters_->calls.load(std::memory_order_relaxed);
  return status;
}

}  // namespace millrace::net
