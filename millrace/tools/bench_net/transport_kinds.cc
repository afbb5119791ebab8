#include "millrace/tools/bench_net/transport_kinds.h"

#include "millrace/net/grpc/grpc_transport.h"

namespace millrace::bench_net {

std::vector<TransportKind> TransportKinds() {
  return {
      {.name = "grpc", .title = "Millrace, gRPC", .make = [] { return net::NewGrpcTransport(); }},
  };
}

}  // namespace millrace::bench_net
