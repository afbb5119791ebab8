// gRPC's credentials.
#pragma once

#include <grpc/grpc_security.h>

#include <memory>

#include "millrace/net/grpc/grpc_transport.h"

namespace millrace::net {

struct ReleaseChannelCredentials {
  void operator()(grpc_channel_credentials* c) const { grpc_channel_credentials_release(c); }
};
struct ReleaseServerCredentials {
  void operator()(grpc_server_credentials* c) const { grpc_server_credentials_release(c); }
};
using ChannelCredentials = std::unique_ptr<grpc_channel_credentials, ReleaseChannelCredentials>;
using ServerCredentials = std::unique_ptr<grpc_server_credentials, ReleaseServerCredentials>;

// Null means insecure.
ChannelCredentials NewChannelCredentials(const TlsCredentials* tls);
ServerCredentials NewServerCredentials(const TlsCredentials* tls);

}  // namespace millrace::net
