// Which sockets an address of a cluster spec means, and whether they are free.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/net/address.h"

namespace millrace::net {

struct BindPlan {
  std::vector<std::string> hosts;  // numbers, for gRPC; the first stands for all interfaces or for loopback
  int port = 0;                    // 0: the system chooses when the first is bound
};

// A loopback host gives loopback only (localhost: IPv4's and, where there is one, IPv6's), any other host all interfaces.
// ALREADY_EXISTS when the port is taken, UNAVAILABLE when it cannot be bound for another reason: gRPC itself only says that it could not.
StatusOr<BindPlan> PlanBind(const HostPort& address);

}  // namespace millrace::net
