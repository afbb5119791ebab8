// "host:port", as in cluster specs.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"

namespace millrace::net {

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  int port = 0;
};

// Parses "host:port" and "[::1]:port". INVALID_ARGUMENT quotes a malformed address and says what is wrong with it.
StatusOr<HostPort> ParseHostPort(absl::string_view address);
std::string JoinHostPort(absl::string_view host, int port);

// True for the name itself, in any case.
bool IsLocalhost(absl::string_view host);

// True for localhost, 127.0.0.0/8 and ::1, which are reachable only from this machine.
bool IsLoopback(absl::string_view host);

}  // namespace millrace::net
