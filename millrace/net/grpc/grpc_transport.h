// A transport over gRPC, the protocol of TensorFlow's servers and clients.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/tls_credentials.h"
#include "millrace/net/transport.h"

namespace millrace::net {

struct GrpcTransportOptions {
  // Mutual TLS for every channel and listener: a peer without a certificate from the authority is refused, and a
  // server's certificate must match the host in the channel's address. Null means neither encryption nor
  // authentication, as in TensorFlow.
  std::shared_ptr<const TlsCredentials> tls = nullptr;
  // The maximum number of calls in handlers at once; further calls wait. One thread more than there are running
  // handlers polls the network.
  int max_threads = 64;
  // A listener pings clients that it has not heard of for `ping_interval`, and disconnects those that do not answer
  // within `ping_timeout`: their machine is gone, or something between swallows what is sent. TensorFlow's clients
  // answer only every five seconds while no call of theirs is in flight.
  absl::Duration ping_interval = absl::Seconds(10);
  absl::Duration ping_timeout = absl::Seconds(20);
  // The interval of checks for connections that have gone silent. After five without an answer to any call, the peer
  // is probed; after eight, over a new connection, which replaces the silent one if it is answered.
  absl::Duration silence_check = absl::Seconds(1);
};

// Handlers (Service::OnCall, Channel::Done, cancellation callbacks) run on the thread that received the event;
// meanwhile another thread waits for the next event. Proxies from the environment are not used. A message of 4 GiB or
// more fails with RESOURCE_EXHAUSTED.
//
// The destructor cancels the calls in flight and returns when their Dones have run. It must not run in a handler.
std::unique_ptr<Transport> NewGrpcTransport(GrpcTransportOptions options = {});

}  // namespace millrace::net
