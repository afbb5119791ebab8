// Which of the connections that calls came over still exist.
//
// gRPC tells a server when a call ends, not when a connection does: a client that goes away between two calls leaves no trace in it.
// The operating system knows.
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
  // Of each peer, in the words of IncomingCall::peer(). kUnknown for one in a form that is not understood, and where nobody can tell.
  virtual std::vector<State> Look(absl::Span<const std::string> peers) = 0;
};

// The TCP connections to one port of this machine, as Linux lists them in `proc_net` (tcp and tcp6). Tables that do not even have the
// socket that listens at the port, as in some sandboxes, are not believed.
class TcpConnectionTable : public ConnectionTable {
 public:
  explicit TcpConnectionTable(std::string proc_net = "/proc/self/net") : proc_net_(std::move(proc_net)) {}
  // Before this nobody can tell.
  void set_local_port(int port) { local_port_.store(port); }
  std::vector<State> Look(absl::Span<const std::string> peers) override;

 private:
  const std::string proc_net_;
  std::atomic<int> local_port_{0};
};

// One form for an address and port: "127.0.0.1:40000", "[::1]:40000"; IPv4 within IPv6 is IPv4. Empty for what is no
// "ipv4:..." or "ipv6:...".
std::string NormalPeer(absl::string_view peer);
// Adds the remote ends, in that form, of the established connections to `local_port` that a table of the kernel's lists. True when it
// lists a socket that listens there.
bool ReadTcpTable(absl::string_view table, int local_port, absl::flat_hash_set<std::string>* remote_ends);

}  // namespace millrace::net
