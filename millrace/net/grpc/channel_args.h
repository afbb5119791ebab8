// Settings for gRPC channels and servers.
#pragma once

#include <grpc/grpc.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/net/grpc/grpc_transport.h"

namespace millrace::net {

// A client that does not complete TLS's and HTTP/2's handshakes in this time is disconnected.
inline constexpr absl::Duration kGrpcHandshakeTimeout = absl::Seconds(10);

// A list of settings. Names must be literals.
class ChannelArgs {
 public:
  ChannelArgs& Set(const char* name, int value);
  // The text must outlive what `get` returns.
  ChannelArgs& Set(const char* name, const std::string& value);
  ChannelArgs& SetPointer(const char* name, void* value, const grpc_arg_pointer_vtable* vtable);
  // Valid until the next Set.
  const grpc_channel_args* get();

 private:
  std::vector<grpc_arg> args_;
  grpc_channel_args view_{};
};

ChannelArgs ClientArgs();
ChannelArgs ServerArgs(const GrpcTransportOptions& options);

}  // namespace millrace::net
