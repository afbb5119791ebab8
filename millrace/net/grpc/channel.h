// A Channel over gRPC, and the calls on it.
#pragma once

#include <grpc/grpc.h>

#include <memory>
#include <string>

#include "millrace/base/mutex.h"
#include "millrace/net/calls_in_flight.h"
#include "millrace/net/grpc/completion_queue.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport.h"

namespace millrace::net {

// A gRPC channel: a connection that reconnects.
class GrpcConnection {
 public:
  GrpcConnection(const std::string& address, const TlsCredentials* tls);
  ~GrpcConnection();
  grpc_channel* get() const { return channel_; }

 private:
  grpc_channel* channel_;
};

class GrpcChannel final : public Channel, public std::enable_shared_from_this<GrpcChannel> {
 public:
  GrpcChannel(std::string address, std::shared_ptr<const TlsCredentials> tls, CompletionQueue* queue,
              CallsInFlight* in_flight);

  RefPtr<OutgoingCall> Call(const std::string& method, Bytes request, const CallOptions& options, Done done) override;

  // A call could not be made on `connection`, so the next one reconnects immediately. gRPC by itself would keep failing
  // calls with its last error for up to a second, although the peer may be back.
  void OnUnavailable(const GrpcConnection* connection);
  bool secure() const { return tls_ != nullptr; }

 private:
  std::shared_ptr<GrpcConnection> Connection();

  const std::shared_ptr<const TlsCredentials> tls_;
  CompletionQueue* const queue_;
  CallsInFlight* const in_flight_;
  Mutex mu_;
  std::shared_ptr<GrpcConnection> connection_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
