// Tells which of the connections that calls came over still exist.
//
// gRPC tells a server when a call ends, but not when a connection does, so it does not notice a client that disappears
// between two calls. The operating system does.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace millrace::net {

// Thread-safe.
class ConnectionTable {
 public:
  enum class State { kConnected, kGone, kUnknown };

  virtual ~ConnectionTable() = default;
  // The state of each peer, given as IncomingCall::peer() names it. kUnknown if the form of the name is not known or
  // the state cannot be determined.
  virtual std::vector<State> Look(absl::Span<const std::string> peers) = 0;
};

// The TCP connections to one port of this machine, as Linux lists them in `proc_net` (tcp and tcp6). If the tables do
// not contain the socket that listens at the port, as in some sandboxes, they are ignored.
class TcpConnectionTable : public ConnectionTable {
 public:
  explicit TcpConnectionTable(std::string proc_net = "/proc/self/net") : proc_net_(std::move(proc_net)) {}
  // Until this is called, every state is kUnknown.
  void set_local_port(int port) { local_port_.store(port); }
  std::vector<State> Look(absl::Span<const std::string> peers) override;

 private:
  const std::string proc_net_;
  std::atomic<int> local_port_{0};
};

// The canonical form of a peer's address and port: "127.0.0.1:40000", "[::1]:40000"; IPv4-mapped IPv6 addresses become
// IPv4. Empty for anything but "ipv4:..." and "ipv6:...".
std::string NormalPeer(absl::string_view peer);
// Parses a table of the kernel and adds the remote ends, in canonical form, of the established connections to
// `local_port`. Returns true if the table contains a socket that listens there.
bool ReadTcpTable(absl::string_view table, int local_port, absl::flat_hash_set<std::string>* remote_ends);

}  // namespace millrace::net
