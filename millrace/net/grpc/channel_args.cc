#include "millrace/net/grpc/channel_args.h"

#include <limits>

namespace millrace::net {
namespace {

int Millis(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

ChannelArgs CommonArgs() {
  ChannelArgs args;
  args.Set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1)
      .Set(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1)
      .Set(GRPC_ARG_MAX_METADATA_SIZE, 64 * 1024)
      // Nothing is compressed here, and the filter that would costs each call; what others have compressed is read.
      .Set(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  return args;
}

}  // namespace

ChannelArgs& ChannelArgs::Set(const char* name, int value) {
  grpc_arg arg;
  arg.type = GRPC_ARG_INTEGER;
  arg.key = const_cast<char*>(name);
  arg.value.integer = value;
  args_.push_back(arg);
  return *this;
}

ChannelArgs& ChannelArgs::Set(const char* name, const std::string& value) {
  grpc_arg arg;
  arg.type = GRPC_ARG_STRING;
  arg.key = const_cast<char*>(name);
  arg.value.string = const_cast<char*>(value.c_str());
  args_.push_back(arg);
  return *this;
}

ChannelArgs& ChannelArgs::SetPointer(const char* name, void* value, const grpc_arg_pointer_vtable* vtable) {
  grpc_arg arg;
  arg.type = GRPC_ARG_POINTER;
  arg.key = const_cast<char*>(name);
  arg.value.pointer.p = value;
  arg.value.pointer.vtable = vtable;
  args_.push_back(arg);
  return *this;
}

const grpc_channel_args* ChannelArgs::get() {
  view_.num_args = args_.size();
  view_.args = args_.data();
  return &view_;
}

ChannelArgs ClientArgs() {
  ChannelArgs args = CommonArgs();
  args.Set(GRPC_ARG_ENABLE_HTTP_PROXY, 0)
      .Set(GRPC_ARG_ENABLE_RETRIES, 0)
      .Set(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1)
      // A connection belongs to one channel of ours, which thereby decides when to try again.
      .Set(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1)
      .Set(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100)
      .Set(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000)
      // How long one attempt to connect may take: longer than a peer may be silent. A busy machine takes its time, and
      // whoever waits for a peer that does not answer has a limit of its own.
      .Set(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 8000)
      // A connection without calls stays: a lane beside it may carry them, and who is gone is seen by its end.
      .Set(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, std::numeric_limits<int>::max())
      .Set(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 100);
  return args;
}

ChannelArgs ServerArgs(const GrpcTransportOptions& options) {
  ChannelArgs args = CommonArgs();
  args.Set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Millis(kGrpcHandshakeTimeout))
      // Clients may ask as often as they like whether the server is there.
      .Set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1)
      .Set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0)
      .Set(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(options.ping_interval))
      .Set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(options.ping_timeout))
      .Set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1)
      .Set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return args;
}

}  // namespace millrace::net
