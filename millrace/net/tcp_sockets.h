// TCP sockets as all transports use them.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/net/address.h"

namespace millrace::net {

struct TcpListeners {
  std::vector<Fd> sockets;  // non-blocking and close-on-exec, all at the same port
  int port = 0;
};
// Listens at an address of a cluster spec. A loopback host listens on loopback only (localhost on IPv4's and, if there
// is one, IPv6's), any other host on all interfaces. With port 0 the system chooses one. ALREADY_EXISTS if the port is
// taken, UNAVAILABLE if it cannot be bound for another reason.
StatusOr<TcpListeners> ListenTcp(const HostPort& address);

// An empty Fd, with errno set, if no connection is pending or the system has no descriptors.
Fd AcceptSocket(int listening);

// For a connection: no delay, and the kernel notices within 10 s that the other host is cut off or gone.
void SetTcpOptions(int fd);

// The other end of a socket: "ipv4:127.0.0.1:40000", or "unix:" and a process id.
std::string PeerName(int fd);

}  // namespace millrace::net
