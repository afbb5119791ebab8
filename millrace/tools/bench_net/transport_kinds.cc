#include "millrace/tools/bench_net/transport_kinds.h"

#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_transport.h"

namespace millrace::bench_net {
namespace {

std::unique_ptr<net::Transport> Lane(net::LaneKind kind) {
  return net::NewLaneTransport(net::NewGrpcTransport(), {.kind = kind});
}

}  // namespace

std::vector<TransportKind> TransportKinds() {
  return {
      {.name = "shm",
       .title = "Millrace, shm",
       .make = [] { return Lane(net::LaneKind::kShm); },
       .same_host = true,
       .is_lane = true},
      {.name = "tcp", .title = "Millrace, TCP", .make = [] { return Lane(net::LaneKind::kTcp); }, .is_lane = true},
      {.name = "grpc", .title = "Millrace, gRPC", .make = [] { return net::NewGrpcTransport(); }},
  };
}

}  // namespace millrace::bench_net
