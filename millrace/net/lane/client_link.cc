#include "millrace/net/lane/client_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/string_view.h"
#include "millrace/net/address.h"
#include "millrace/net/lane/hello.h"
#include "millrace/net/lane/sockets.h"

namespace millrace::net {

ClientLink::ClientLink(LaneCore* core, DialledLane lane, std::shared_ptr<PeerCounters> counters,
                       const std::string& address)
    : LaneLink(core, std::move(lane.fd), std::move(counters)),
      address_(address),
      medium_(lane.medium),
      why_not_better_(std::move(lane.why_not_better)) {}

// ---- The handshake

StatusOr<RefPtr<ClientLink>> ClientLink::Dial(LaneCore* core, const std::string& address, const LaneOffer& offer,
                                              absl::Time deadline, std::shared_ptr<PeerCounters> counters,
                                              std::function<void(const Status&)> on_over) {
  if (offer.version() != kLaneVersion) {
    return FailedPrecondition("it speaks version ", offer.version(), " of the step lane, this task version ",
                              kLaneVersion);
  }
  MR_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  MR_ASSIGN_OR_RETURN(DialledLane lane, DialFastest(core, offer, host_port.host, deadline));
  auto link = MakeRef<ClientLink>(core, std::move(lane), std::move(counters), address);
  if (core->options.tls != nullptr && !link->medium().within_host()) {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<TlsStream> tls,
                        TlsStream::Connect(*core->options.tls, link->fd(), host_port.host));
    link->SetTls(std::move(tls));
  }
  MR_RETURN_IF_ERROR(link->ShakeHands(offer, deadline));
  link->on_over_ = std::move(on_over);
  if (Status armed = link->Arm(link); !armed.ok()) {
    link->on_over_ = nullptr;
    link->End(armed);
    return armed;
  }
  if (!link->medium().within_host()) link->StartHeartbeat();
  return link;
}

Status ClientLink::ShakeHands(const LaneOffer& offer, absl::Time deadline) {
  methods_.assign(offer.methods().begin(), offer.methods().end());
  if (methods_.size() > size_t{1} << 16)
    return InvalidArgument("an offer of ", methods_.size(), " methods");  // a frame has 16 bits for the method
  for (size_t i = 0; i < methods_.size(); ++i) method_index_.emplace(methods_[i], static_cast<int>(i));
  HelloBody hello;
  if (offer.secret().size() != hello.secret.size()) return InvalidArgument("an offer without a secret");
  std::memcpy(hello.secret.data(), offer.secret().data(), hello.secret.size());
  const LaneOptions& options = core()->options;
  hello.reads_memory = medium_->reads_memory() && options.read_memory;
  // Where the system asks for leave, none is given while keys are in this process's memory.
  if (hello.reads_memory && options.tls == nullptr) medium_->AllowReads(fd()).IgnoreError();
  hello.window = options.window;
  hello.probe = probe();
  hello.probe_address = reinterpret_cast<uintptr_t>(probe().data());
  MR_RETURN_IF_ERROR(WriteAll(MakeFrame({.kind = FrameKind::kHello}, BodyBytes(hello), 0, 0).head, deadline));
  MR_ASSIGN_OR_RETURN(Frame answer, ReadFrame(deadline));
  if (answer.header.kind == FrameKind::kError) return absl::PermissionDeniedError(answer.message.Take().Flatten());
  if (answer.header.kind == FrameKind::kBye) return Cancelled("the server is stopping");
  MR_ASSIGN_OR_RETURN(const WelcomeBody welcome, ParseWelcome(std::move(answer)));

  LinkTerms terms{.peer_window = static_cast<size_t>(welcome.window), .peer_reads_memory = welcome.reads_memory != 0};
  if (medium_->reads_memory()) {
    Status can_read = absl::PermissionDeniedError("reading memory is switched off");
    if (options.read_memory) {
      StatusOr<std::shared_ptr<const PeerMemory>> memory =
          medium_->OpenMemory(fd(), welcome.probe_address, welcome.probe);
      can_read = memory.status();
      if (can_read.ok()) terms.memory = *std::move(memory);
    }
    if (!can_read.ok()) {
      why_not_better_ = absl::StrCat("large messages go through ", medium_->carrier(), ": ", can_read.message());
    } else if (!terms.peer_reads_memory) {
      why_not_better_ =
          absl::StrCat("large messages to it go through ", medium_->carrier(), ": it cannot read this task's memory");
    }
  }
  SetTerms(terms);
  return WriteAll(MakeFrame({.kind = FrameKind::kReady, .argument = terms.memory != nullptr}, {}, 0, 0).head, deadline);
}

Status ClientLink::WriteAll(absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
    const ssize_t sent = SendPieces(absl::MakeConstSpan(&piece, 1));
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      MR_RETURN_IF_ERROR(WaitFor(fd(), tls_wants_input() ? POLLIN : POLLOUT, deadline, core()->closing.get()));
    } else if (errno != EINTR) {
      return Unavailable("the connection broke in the handshake: ", Failure(errno));
    }
  }
  return absl::OkStatus();
}

StatusOr<Frame> ClientLink::ReadFrame(absl::Time deadline) {
  std::vector<Frame> frames;
  while (frames.empty()) {
    const ssize_t got = Receive(parser()->Room());
    if (got < 0 && errno == EAGAIN) {
      MR_RETURN_IF_ERROR(WaitFor(fd(), POLLIN, deadline, core()->closing.get()));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return Unavailable("the connection broke in the handshake: ", got == 0 ? "it was closed" : Failure(errno));
    MR_RETURN_IF_ERROR(parser()->Parse(static_cast<size_t>(got), &frames));
  }
  if (frames.size() > 1)
    return Unavailable("the other side sent more than its handshake: it is stopping, or speaks another protocol");
  return std::move(frames[0]);
}

// ---- Calls

int ClientLink::MethodIndex(const std::string& method) const {
  const auto it = method_index_.find(method);
  return it == method_index_.end() ? -1 : it->second;
}

RefPtr<LaneOutgoingCall> ClientLink::Call(int method, Bytes& request, const CallOptions& options,
                                          std::shared_ptr<Channel> channel, bool streams, MessageHandler& on_message,
                                          Channel::Done& done) {
  RefPtr<LaneOutgoingCall> call;
  uint64_t id;
  {
    MutexLock lock(&calls_mu_);
    if (closed_) return nullptr;
    id = next_call_++;
    call = MakeRef<LaneOutgoingCall>(ShareRef(this), std::move(channel), methods_[method], options,
                                     std::move(on_message), std::move(done));
    call->set_id(id);
    if (core()->calls.Add(call.get())) {
      MR_CHECK(calls_.Add(id, call));
    } else {
      // The transport is being destroyed and does not wait for this call, so it is not in the table either.
      id = 0;
    }
  }
  if (id == 0) {
    call->Refuse();
    return call;
  }
  counters()->calls.fetch_add(1, std::memory_order_relaxed);
  call->Start(method, streams, std::move(request));
  return call;
}

bool ClientLink::takes_calls() const {
  MutexLock lock(&calls_mu_);
  return !closed_;
}

bool ClientLink::Forget(uint64_t call) {
  RefPtr<LaneOutgoingCall> forgotten;  // released without the lock
  MutexLock lock(&calls_mu_);
  forgotten = calls_.Take(call);
  return forgotten != nullptr;
}

Status ClientLink::OnFrame(Frame frame, EventThread* here, Later* later) {
  const FrameHeader& header = frame.header;
  if (header.kind == FrameKind::kBye) {
    later->push_back([self = ShareRef(this)](EventThread*) {
      self->FailCalls(Unavailable("the server is stopping"));
      self->EndWhenRead();
    });
    return absl::OkStatus();
  }
  const bool last = header.kind == FrameKind::kAnswer || header.kind == FrameKind::kError;
  if (!last && header.kind != FrameKind::kMessage) {
    return InvalidArgument("a frame of kind ", static_cast<int>(header.kind), ", which nobody sends to a caller");
  }
  RefPtr<LaneOutgoingCall> call;
  {
    MutexLock lock(&calls_mu_);
    if (header.call == 0 || header.call >= next_call_)
      return InvalidArgument("an answer to call ", header.call, ", which was never made");
    call = last ? calls_.Take(header.call) : calls_.Find(header.call);
  }
  if (!call) {
    Discard(std::move(frame.message));  // the call was given up
    return absl::OkStatus();
  }
  if (last) DropQueued(header.call);  // the rest of the stream is not wanted
  bool deliver;
  if (header.kind == FrameKind::kMessage) {
    deliver = call->PutMessage(std::move(frame.message));
  } else if (header.kind == FrameKind::kAnswer) {
    deliver = call->PutAnswer(std::move(frame.message));
  } else {
    const uint64_t code = header.argument;
    const size_t size = frame.message.size;
    if (frame.message.announcement != 0) return InvalidArgument("an error whose text is to be read out of memory");
    const std::string text = frame.message.Take().Flatten();
    Consumed(size);
    Flush();
    Status status = code >= 1 && code <= 16 ? Status(static_cast<absl::StatusCode>(code), text)
                                            : absl::UnknownError(absl::StrCat(text, " (status code ", code, ")"));
    deliver = call->PutError(std::move(status));
  }
  if (!deliver) return absl::OkStatus();
  // A thread that waits for its own answers must not be delayed by those of others.
  const bool own = call->MayDeliverOn(*here);
  EventLoop::Closure run = [call = std::move(call)](EventThread* here) { call->Deliver(here); };
  if (own) {
    later->push_back(std::move(run));
  } else {
    core()->loop->Post(std::move(run));
  }
  return absl::OkStatus();
}

void ClientLink::FailCalls(const Status& why) {
  std::vector<std::pair<uint64_t, RefPtr<LaneOutgoingCall>>> calls;
  {
    MutexLock lock(&calls_mu_);
    closed_ = true;
    calls = calls_.TakeAll();
  }
  for (const auto& [id, call] : calls) {
    DropQueued(id);
    call->End(Unavailable(address_, ": the step lane to it ended: ", why.message()));
  }
}

void ClientLink::OnOver(const Status& why) {
  // First, so that a caller whose call fails sees the channel's new status.
  if (on_over_ != nullptr) std::exchange(on_over_, nullptr)(why);
  FailCalls(why);
}

}  // namespace millrace::net
