// The sockets of lanes.
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

// All sockets are non-blocking and close-on-exec.

// `name` is an abstract name, without the leading zero byte. Any user can connect to it; PeerProcess checks that the
// peer belongs to this user.
StatusOr<Fd> ListenUnix(const std::string& name);
StatusOr<Fd> ConnectUnix(const std::string& name);

// True for a numeric address, "10.0.0.7" or "fe80::1%eth0", which needs no lookup.
bool IsNumericHost(const std::string& host);
// Connects to the first of the numeric `hosts` that accepts. Blocks until `deadline`; CANCELLED if `stop` becomes
// readable first.
StatusOr<Fd> ConnectTcp(absl::Span<const std::string> hosts, int port, absl::Time deadline, int stop);

// The process at the other end of a Unix socket. PERMISSION_DENIED if it belongs to another user.
StatusOr<pid_t> PeerProcess(int fd);

// Blocks until `fd` is ready for `events` (of poll). DEADLINE_EXCEEDED, or CANCELLED if `stop` becomes readable first.
Status WaitFor(int fd, short events, absl::Time deadline, int stop);
// True if the other side has closed or is gone, even if there still is data to read.
bool PeerHungUp(int fd);

// Identifies the machine's boot and the namespaces of the container. Processes with the same identity can reach each
// other's Unix sockets and see the same process ids.
const std::string& HostIdentity();

}  // namespace millrace::net
