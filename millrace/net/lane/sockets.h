// The sockets that lanes are made of.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/net/address.h"

namespace millrace::net {

// All of them do not block and are not inherited by programs that are started.

// Only this user's processes are to be let in: see PeerProcess. `name` is an abstract one, without the leading zero.
StatusOr<Fd> ListenUnix(const std::string& name);
StatusOr<Fd> ConnectUnix(const std::string& name);

// As the task at `address` listens: for a loopback host on loopback only, otherwise on all interfaces. All have the port that is returned.
struct TcpListeners {
  std::vector<Fd> sockets;
  int port = 0;
};
StatusOr<TcpListeners> ListenTcp(const HostPort& address);
// True of an address as text, "10.0.0.7" or "fe80::1%eth0": nobody has to be asked about it.
bool IsNumericHost(const std::string& host);
// To the first of `hosts`, which are numeric, that takes the connection. Waits for it until `deadline`; CANCELLED when `stop` becomes readable first.
StatusOr<Fd> ConnectTcp(absl::Span<const std::string> hosts, int port, absl::Time deadline, int stop);

// Without a descriptor when no connection waits, or the system gives none; errno tells.
Fd AcceptSocket(int listening);
void SetTcpOptions(int fd);

// Who is at the other end of a Unix socket. PERMISSION_DENIED for another user's process.
StatusOr<pid_t> PeerProcess(int fd);
// "ipv4:127.0.0.1:40000", "unix:" and a process.
std::string PeerName(int fd);

// Until `fd` is ready for `events` (of poll). DEADLINE_EXCEEDED, or CANCELLED when `stop` becomes readable first.
Status WaitFor(int fd, short events, absl::Time deadline, int stop);
// True when the other side has closed or is gone, whether or not there is still something to read.
bool PeerHungUp(int fd);

// Processes with the same one reach each other's Unix sockets and know each other by the same numbers: the boot of the machine, and
// the namespaces that tell containers apart.
const std::string& HostIdentity();

}  // namespace millrace::net
