// Determines the sockets to bind for an address of a cluster spec, and whether they are free.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/net/address.h"

namespace millrace::net {

struct BindPlan {
  std::vector<std::string> hosts;  // numeric, for gRPC; the first is the wildcard or loopback address
  int port = 0;                    // 0: the system chooses it when the first is bound
};

// A loopback host binds to loopback only (localhost to IPv4's and, if there is one, IPv6's), any other host to all
// interfaces. ALREADY_EXISTS if the port is taken, UNAVAILABLE if it cannot be bound for another reason; gRPC itself
// does not report the reason.
StatusOr<BindPlan> PlanBind(const HostPort& address);

}  // namespace millrace::net
