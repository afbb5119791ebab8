// The transport between the tasks of a cluster, and between clients and tasks: gRPC, and beside it the step lane.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/status.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport.h"

namespace millrace {

// `step_transport` is what every step's messages take: "auto", "shm", "tcp" or "grpc" (net/lane/lane_transport.h). Empty: what the environment variable
// MILLRACE_TRANSPORT says, or "auto". INVALID_ARGUMENT names what is none of these, and where it was said.
StatusOr<std::unique_ptr<net::Transport>> NewClusterTransport(const std::string& step_transport, net::GrpcTransportOptions options);

}  // namespace millrace
