// The transport between the tasks of a cluster, and between clients and tasks: gRPC together with the step lane.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/status.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport.h"

namespace millrace {

// `step_transport` is the transport of step messages: "auto", "shm", "tcp" or "grpc" (net/lane/lane_transport.h). If
// empty, the environment variable MILLRACE_TRANSPORT is used, or "auto". INVALID_ARGUMENT names an unknown value and
// where it came from.
StatusOr<std::unique_ptr<net::Transport>> NewClusterTransport(const std::string& step_transport,
                                                              net::GrpcTransportOptions options);

}  // namespace millrace
