// Settings for gRPC channels and servers.
#pragma once

#include <grpc/grpc.h>

#include <vector>

namespace millrace::net {

// A list of integer settings. Names must be literals.
class ChannelArgs {
 public:
  ChannelArgs& Set(const char* name, int value);
  // Valid until the next Set.
  const grpc_channel_args* get();

 private:
  std::vector<grpc_arg> args_;
  grpc_channel_args view_{};
};

ChannelArgs ClientArgs();
ChannelArgs ServerArgs();

}  // namespace millrace::net
