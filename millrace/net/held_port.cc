#include "millrace/net/held_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "millrace/base/clock.h"

namespace millrace::net {
namespace {

constexpr int kLowest = 10000, kHighest = 65535;
constexpr int kTries = 2000;

struct Range {
  int low = 32768, high = 60999;
};

Range OutgoingPorts() {
  Range range;
  if (FILE* file = std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "re")) {
    Range read;
    if (std::fscanf(file, "%d %d", &read.low, &read.high) == 2) range = read;
    std::fclose(file);
  }
  return range;
}

// Binds on all interfaces of both families, without SO_REUSEADDR, so a port in use is rejected even if its connection
// is just being closed.
Fd Bind(int port) {
  Fd six(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (six.ok()) {
    const int off = 0;
    setsockopt(six.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    if (bind(six.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return six;
    if (errno == EADDRINUSE || errno == EACCES) return {};
  }
  Fd four(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (four.ok() && bind(four.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return four;
  return {};
}

}  // namespace

StatusOr<HeldPort> HeldPort::Take() {
  const Range outgoing = OutgoingPorts();
  // If the ephemeral range covers all ports, any port will do.
  const bool all = outgoing.low <= kLowest && outgoing.high >= kHighest;
  // Jobs that start at the same time search from different ports.
  uint64_t place =
      static_cast<uint64_t>(getpid()) * 7919 + static_cast<uint64_t>(absl::ToUnixNanos(Clock::Real()->Now()));
  for (int i = 0; i < kTries; ++i) {
    place = place * 6364136223846793005u + 1442695040888963407u;
    const int port = kLowest + static_cast<int>((place >> 33) % (kHighest - kLowest + 1));
    if (!all && port >= outgoing.low && port <= outgoing.high) continue;
    if (Fd socket = Bind(port); socket.ok()) return HeldPort(std::move(socket), port);
  }
  return ResourceExhausted("no free port found in ", kTries, " tries");
}

}  // namespace millrace::net
