#include "millrace/net/lane/server_link.h"

#include <utility>
#include <vector>

#include "millrace/base/affinity.h"
#include "millrace/net/lane/served_call.h"
#include "millrace/net/lane/sockets.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::net {
namespace {

// More calls than any peer has in flight.
constexpr size_t kMostCalls = 1 << 20;

uint64_t NextConnection() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

ServerLink::ServerLink(RefPtr<LaneEndpoint> endpoint, Fd fd, const LaneMedium* medium)
    : LaneLink(endpoint->core(), std::move(fd), std::make_shared<PeerCounters>()),
      endpoint_(std::move(endpoint)),
      medium_(medium),
      connection_(NextConnection()),
      peer_(PeerName(this->fd())) {}

void ServerLink::Start(RefPtr<LaneEndpoint> endpoint, Fd fd, const LaneMedium* medium) {
  if (const Status admitted = medium->Admit(fd.get()); !admitted.ok())
    return endpoint->Refused(PeerName(fd.get()), admitted);
  auto link = MakeRef<ServerLink>(endpoint, std::move(fd), medium);
  LaneCore* const core = endpoint->core();
  if (core->options.tls != nullptr && !medium->within_host()) {
    StatusOr<std::unique_ptr<TlsStream>> tls = TlsStream::Accept(*core->options.tls, link->fd());
    if (!tls.ok()) return endpoint->Refused(link->peer(), tls.status());
    link->SetTls(*std::move(tls));
  }
  {
    MutexLock lock(&link->calls_mu_);  // the deadline may pass before it is stored
    link->hello_deadline_ = core->deadlines.Add(core->options.clock->Now() + core->options.handshake_timeout, [link] {
      link->core()->loop->Post(
          [link](EventThread*) { link->End(DeadlineExceeded("it did not complete the handshake in time")); });
    });
  }
  if (!endpoint->AddLink(link.get())) {
    link->RemoveHelloDeadline();
    return endpoint->Refused(link->peer(), Unavailable("there are too many connections"));
  }
  if (const Status armed = link->Arm(link); !armed.ok()) link->End(armed);
}

void ServerLink::RemoveHelloDeadline() {
  LaneDeadlines::Id id;
  {
    MutexLock lock(&calls_mu_);
    id = hello_deadline_;
  }
  core()->deadlines.Remove(id);
}

std::string ServerLink::kind() const {
  MutexLock lock(&calls_mu_);
  return stage_ != Stage::kOpen ? "" : std::string(medium_->name());
}

std::string ServerLink::why_not_better() const {
  MutexLock lock(&calls_mu_);
  return why_not_better_;
}

std::string ServerLink::peer() const {
  MutexLock lock(&calls_mu_);
  return peer_;
}

Status ServerLink::OnFrame(Frame frame, EventThread* /*here*/, Later* later) {
  Stage stage;
  {
    MutexLock lock(&calls_mu_);
    stage = stage_;
  }
  if (stage == Stage::kHello) return OnHello(std::move(frame));
  if (stage == Stage::kReady) return OnReady(frame.header, later);
  const FrameHeader& header = frame.header;
  switch (header.kind) {
    case FrameKind::kCall:
      return OnCall(std::move(frame), later);
    case FrameKind::kMessage:
    case FrameKind::kCancel:
      break;
    default:
      return InvalidArgument("a frame of kind ", static_cast<int>(header.kind), ", which nobody sends to a server");
  }
  if (header.call == 0 || header.call > newest_call_)
    return InvalidArgument("a message of call ", header.call, ", which was never made");
  if (header.kind == FrameKind::kMessage) callers_core_.store(int{header.method} - 1, std::memory_order_relaxed);
  RefPtr<ServedCall> call = Find(header.call);
  if (!call) {
    if (header.kind == FrameKind::kMessage) Discard(std::move(frame.message));  // it was answered meanwhile
  } else if (header.kind == FrameKind::kCancel) {
    Forget(header.call);
    DropQueued(header.call);
    later->push_back([call = std::move(call)](EventThread*) { call->GiveUp(); });
  } else if (!call->streams()) {
    return InvalidArgument("a message to call ", header.call, ", which does not stream");
  } else if (call->PutMessage(std::move(frame.message))) {
    later->push_back([call = std::move(call)](EventThread* here) { call->Deliver(here); });
  }
  return absl::OkStatus();
}

Status ServerLink::OnHello(Frame frame) {
  MR_ASSIGN_OR_RETURN(const HelloBody hello, ParseHello(std::move(frame)));
  StatusOr<LanePeer> peer = endpoint_->UseSecret(hello.secret);
  if (!peer.ok()) {
    Send({.kind = FrameKind::kError}, Bytes::Of(std::string(peer.status().message())));
    return peer.status();
  }
  RemoveHelloDeadline();
  core()->admission.SettleFd(fd());
  from_client_.store(peer->is_client, std::memory_order_relaxed);
  agreed_.peer_window = static_cast<size_t>(hello.window);
  Status can_read = absl::PermissionDeniedError("reading memory is switched off");
  if (!medium_->reads_memory() || !hello.reads_memory) {
    can_read = absl::PermissionDeniedError("the other side does not want its memory to be read");
  } else if (core()->options.read_memory) {
    StatusOr<std::shared_ptr<const PeerMemory>> memory = medium_->OpenMemory(fd(), hello.probe_address, hello.probe);
    can_read = memory.status();
    if (can_read.ok()) agreed_.memory = *std::move(memory);
  }
  // Where the system asks for leave, none is given while keys are in this process's memory.
  if (medium_->reads_memory() && hello.reads_memory && core()->options.read_memory && core()->options.tls == nullptr)
    medium_->AllowReads(fd()).IgnoreError();
  SetTerms(agreed_);  // the frame after the peer's kReady may be a large call
  WelcomeBody welcome;
  welcome.reads_memory = agreed_.memory != nullptr;
  welcome.window = core()->options.window;
  welcome.probe = probe();
  welcome.probe_address = reinterpret_cast<uintptr_t>(probe().data());
  {
    MutexLock lock(&calls_mu_);
    peer_ = std::move(peer->name);
    if (medium_->reads_memory() && !can_read.ok())
      why_not_better_ = absl::StrCat("large messages go through ", medium_->carrier(), ": ", can_read.message());
    stage_ = Stage::kReady;
  }
  Send({.kind = FrameKind::kWelcome}, BodyBytes(welcome));
  return absl::OkStatus();
}

Status ServerLink::OnReady(const FrameHeader& header, Later* later) {
  if (header.kind != FrameKind::kReady)
    return InvalidArgument("a frame of kind ", static_cast<int>(header.kind), " in a handshake");
  agreed_.peer_reads_memory = medium_->reads_memory() && header.argument == 1;
  SetTerms(agreed_);
  // A task on this host gets a dedicated thread: the scheduler then runs the two alternating threads on one core.
  if (medium_->within_host()) {
    later->push_back([self = ShareRef<ServerLink>(this)](EventThread*) {
      self->core()->loop->StartThread([self](EventThread* here) { self->Attend(here); });
    });
  }
  if (!medium_->within_host()) StartHeartbeat();
  MutexLock lock(&calls_mu_);
  stage_ = Stage::kOpen;
  if (medium_->reads_memory() && !agreed_.peer_reads_memory && why_not_better_.empty()) {
    why_not_better_ =
        absl::StrCat("large messages to it go through ", medium_->carrier(), ": it cannot read this task's memory");
  }
  return absl::OkStatus();
}

Status ServerLink::OnCall(Frame frame, Later* later) {
  const FrameHeader& header = frame.header;
  if (header.call == 0) return InvalidArgument("a call without a number");
  if (header.method >= endpoint_->service()->methods().size()) {
    return InvalidArgument("a call of method ", header.method, ", of which there are ",
                           endpoint_->service()->methods().size());
  }
  newest_call_ = std::max(newest_call_, header.call);
  counters()->calls.fetch_add(1, std::memory_order_relaxed);
  auto call = MakeRef<ServedCall>(ShareRef<ServerLink>(this), header);
  bool added = false;
  {
    MutexLock lock(&calls_mu_);
    if (!closed_ && calls_.size() < kMostCalls) added = calls_.Add(header.call, call);
  }
  if (!added) return InvalidArgument("a second call ", header.call, ", or too many");
  if (!endpoint_->BeginCall()) {
    Forget(header.call);
    Discard(std::move(frame.message));
    Send({.kind = FrameKind::kError,
          .call = header.call,
          .argument = static_cast<uint64_t>(absl::StatusCode::kUnavailable)},
         Bytes::Of("the server is stopping"));
    return absl::OkStatus();
  }
  later->push_back([call = std::move(call), message = std::move(frame.message)](EventThread* here) mutable {
    call->Serve(std::move(message), here);
  });
  return absl::OkStatus();
}

void ServerLink::Attend(EventThread* here) {
  CoreFollower place;
  while (!over()) {
    if (core()->loop->crowded()) {
      place.Follow(callers_core_.load(std::memory_order_relaxed));
    } else {
      place.Leave();
    }
    WatchHere(here->watch());
    if (here->watch()->empty()) return;  // over, or soon
    here->watch()->HandleEvents(here, /*timeout=*/-1);
    here->RunLeft();
  }
}

RefPtr<ServedCall> ServerLink::Find(uint64_t call) {
  MutexLock lock(&calls_mu_);
  return calls_.Find(call);
}

bool ServerLink::Forget(uint64_t call) {
  RefPtr<ServedCall> forgotten;  // released without the lock
  MutexLock lock(&calls_mu_);
  forgotten = calls_.Take(call);
  return forgotten != nullptr;
}

void ServerLink::CancelCalls(const Status& why) {
  std::vector<RefPtr<ServedCall>> calls;
  {
    MutexLock lock(&calls_mu_);
    calls = calls_.List();
  }
  for (const RefPtr<ServedCall>& call : calls) call->Cancel(why);
}

void ServerLink::SayBye() { Send({.kind = FrameKind::kBye}); }

void ServerLink::OnOver(const Status& why) {
  RemoveHelloDeadline();
  std::vector<std::pair<uint64_t, RefPtr<ServedCall>>> calls;
  bool refused;
  {
    MutexLock lock(&calls_mu_);
    closed_ = true;
    refused = stage_ != Stage::kOpen;
    calls = calls_.TakeAll();
  }
  if (refused || absl::IsInvalidArgument(why)) endpoint_->Refused(peer(), why);
  for (const auto& [number, call] : calls) call->GiveUp();
  endpoint_->RemoveLink(this);
}

}  // namespace millrace::net
