#include "millrace/net/grpc/channel.h"

#include <utility>

#include "absl/strings/str_replace.h"
#include "millrace/net/grpc/channel_args.h"
#include "millrace/net/grpc/credentials.h"
#include "millrace/net/grpc/outgoing_call.h"

namespace millrace::net {

GrpcConnection::GrpcConnection(const std::string& address, const TlsCredentials* tls) {
  // The target is a URI, and an IPv6 address has brackets.
  const std::string target =
      absl::StrCat("dns:///", absl::StrReplaceAll(address, {{"[", "%5B"}, {"]", "%5D"}, {"%", "%25"}}));
  ChannelArgs args = ClientArgs();
  channel_ = grpc_channel_create(target.c_str(), NewChannelCredentials(tls).get(), args.get());
}

GrpcConnection::~GrpcConnection() { grpc_channel_destroy(channel_); }

GrpcChannel::GrpcChannel(std::string address, std::shared_ptr<const TlsCredentials> tls, CompletionQueue* queue,
                         CallsInFlight* in_flight)
    : Channel(std::move(address)), tls_(std::move(tls)), queue_(queue), in_flight_(in_flight) {}

RefPtr<OutgoingCall> GrpcChannel::Call(const std::string& method, Bytes request, const CallOptions& options,
                                       Done done) {
  auto call = MakeRef<GrpcOutgoingCall>(shared_from_this(), Connection(), in_flight_, method, options, std::move(done));
  call->Start(request, queue_);
  return call;
}

std::shared_ptr<GrpcConnection> GrpcChannel::Connection() {
  MutexLock lock(&mu_);
  if (connection_ == nullptr) connection_ = std::make_shared<GrpcConnection>(address(), tls_.get());
  return connection_;
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
