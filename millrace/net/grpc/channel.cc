#include "millrace/net/grpc/channel.h"

#include <sys/socket.h>

#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "millrace/base/fd.h"
#include "millrace/base/log.h"
#include "millrace/net/address.h"
#include "millrace/net/grpc/channel_args.h"
#include "millrace/net/grpc/credentials.h"
#include "millrace/net/grpc/outgoing_call.h"

namespace millrace::net {
namespace {

// No server has it; every gRPC server answers UNIMPLEMENTED, without any handler.
constexpr char kProbeMethod[] = "/millrace.Probe/AreYouThere";
// A probe of the connection in use outlives the attempt of a new one.
constexpr absl::Duration kProbeTimeout = absl::Minutes(1);

bool HasIpv4() {
  static const bool has = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).get() >= 0;
  return has;
}

}  // namespace

GrpcConnection::GrpcConnection(const std::string& address, const TlsCredentials* tls) {
  // The target is a URI, and an IPv6 address has brackets.
  std::string target =
      absl::StrCat("dns:///", absl::StrReplaceAll(address, {{"[", "%5B"}, {"]", "%5D"}, {"%", "%25"}}));
  ChannelArgs args = ClientArgs();
  // The name needs no lookup, and a bare container may have no /etc/hosts that knows it. TLS still checks the name.
  if (const auto parsed = ParseHostPort(address); parsed.ok() && IsLocalhost(parsed->host) && HasIpv4()) {
    target = absl::StrCat("ipv4:127.0.0.1:", parsed->port);
    args.Set(GRPC_ARG_DEFAULT_AUTHORITY, address);
  }
  channel_ = grpc_channel_create(target.c_str(), NewChannelCredentials(tls).get(), args.get());
}

GrpcConnection::~GrpcConnection() { grpc_channel_destroy(channel_); }

void GrpcConnection::Add(GrpcOutgoingCall* call) {
  MutexLock lock(&mu_);
  calls_.insert(call);
  if (call->is_probe()) ++probes_;
}

void GrpcConnection::Remove(GrpcOutgoingCall* call, CallEnd how) {
  if (how == CallEnd::kAnswered) heard_.store(true, std::memory_order_relaxed);
  if (how == CallEnd::kGivenUp && !call->is_probe()) given_up_.store(true, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  calls_.erase(call);
  if (call->is_probe()) --probes_;
}

bool GrpcConnection::has_calls() const {
  MutexLock lock(&mu_);
  return calls_.size() > probes_;
}

void GrpcConnection::Abandon() {
  std::vector<RefPtr<GrpcOutgoingCall>> calls;
  {
    MutexLock lock(&mu_);
    for (GrpcOutgoingCall* call : calls_) calls.push_back(ShareRef(call));
  }
  for (const auto& call : calls) call->Abandon();
}

GrpcChannel::GrpcChannel(std::string address, const GrpcChannelContext* context)
    : Channel(std::move(address)), context_(context) {}

RefPtr<OutgoingCall> GrpcChannel::Call(const std::string& method, Bytes request, const CallOptions& options,
                                       Done done) {
  auto call = MakeRef<GrpcOutgoingCall>(shared_from_this(), Connection(), context_->in_flight, method, options,
                                        std::move(done));
  call->Start(request, context_->queue);
  context_->poke();
  return call;
}

std::shared_ptr<GrpcConnection> GrpcChannel::NewConnection() const {
  return std::make_shared<GrpcConnection>(address(), context_->tls.get());
}

std::shared_ptr<GrpcConnection> GrpcChannel::Connection() {
  MutexLock lock(&mu_);
  if (connection_ == nullptr) {
    connection_ = NewConnection();
    silent_ = 0;
  }
  return connection_;
}

bool GrpcChannel::Tick() {
  std::shared_ptr<GrpcConnection> probe, candidate, dropped, replaced;
  bool more = false;
  {
    MutexLock lock(&mu_);
    if (connection_ == nullptr) {
      dropped = std::exchange(candidate_, {}).connection;
      return false;
    }
    const bool waits = connection_->has_calls();
    const bool given_up = connection_->TakeGivenUp();
    if (connection_->TakeHeard()) {
      silent_ = given_up ? 1 : 0;  // it may have gone silent after the answer
      dropped = std::exchange(candidate_, {}).connection;
      return waits || given_up;
    }
    if (!waits && !given_up && silent_ == 0) return false;
    ++silent_;
    if (silent_ == kTicksToProbe) probe = connection_;
    if (candidate_.connection != nullptr) {
      ++candidate_.ticks;
      // Both get the same chance: what woke the peer for one may let it answer on the other as well.
      if (candidate_.answered_for >= 0 && ++candidate_.answered_for > 1) {
        replaced = std::exchange(connection_, std::exchange(candidate_, {}).connection);
        silent_ = 0;
      } else if (candidate_.answered_for < 0 && candidate_.ticks > kTicksToReconnect) {
        dropped = std::exchange(candidate_, {}).connection;
        silent_ = waits ? 1 : 0;  // begin again, if anybody still waits
      }
    } else if (silent_ >= kTicksToReconnect) {
      candidate = candidate_.connection = NewConnection();
    }
    more = true;
  }
  if (probe != nullptr) Probe(std::move(probe), /*candidate=*/false);
  if (candidate != nullptr) Probe(std::move(candidate), /*candidate=*/true);
  if (replaced != nullptr) {
    MR_LOG(Warning, "the connection to ", address(), " has gone silent, and a new one works: it replaces the old one");
    replaced->Abandon();
  }
  return more;
}

void GrpcChannel::Probe(std::shared_ptr<GrpcConnection> connection, bool candidate) {
  const GrpcConnection* const probed = connection.get();
  auto call = MakeRef<GrpcOutgoingCall>(shared_from_this(), std::move(connection), context_->in_flight, kProbeMethod,
                                        CallOptions{.timeout = kProbeTimeout},
                                        [self = shared_from_this(), probed, candidate](const StatusOr<Bytes>& answer) {
                                          if (candidate && absl::IsUnimplemented(answer.status()))
                                            self->OnCandidateAnswer(probed);
                                        });
  call->set_is_probe();
  call->Start({}, context_->queue);
}

void GrpcChannel::OnCandidateAnswer(const GrpcConnection* connection) {
  MutexLock lock(&mu_);
  if (candidate_.connection.get() == connection) candidate_.answered_for = 0;
}

void GrpcChannel::OnUnavailable(const GrpcConnection* connection) {
  std::shared_ptr<GrpcConnection> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  // Idle, it connects with the next call by itself; connecting or connected, it is already another attempt.
  if (connection_.get() != connection) return;
  const grpc_connectivity_state state = grpc_channel_check_connectivity_state(connection_->get(), 0);
  if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) dropped = std::move(connection_);
}

}  // namespace millrace::net
