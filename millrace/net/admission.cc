#include "millrace/net/admission.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "millrace/base/descriptor_limit.h"
#include "millrace/base/log.h"
#include "millrace/net/address.h"
#include "millrace/net/connection_table.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::net {
namespace {

// While connections are refused, the open ones are counted again at most this often.
constexpr absl::Duration kSweepInterval = absl::Milliseconds(100);
// Repeated refusals must not fill the log.
constexpr absl::Duration kLogInterval = absl::Seconds(10);

// Identifies a socket, whatever becomes of the number of its descriptor.
std::optional<uint64_t> Cookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

Fd OpenSpare() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// Descriptors that connections leave to files, lanes and connections to others.
int64_t Reserve(int64_t limit) { return std::clamp<int64_t>(limit / 8, 16, 256); }

}  // namespace

Admission::Admission(AdmissionOptions options) : options_(std::move(options)), spare_(OpenSpare()) {}

bool Admission::OutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

Fd Admission::Accept(int listening) {
  for (;;) {
    Fd fd = AcceptSocket(listening);
    if (!fd.ok()) {
      const int error = errno;
      if (error == EINTR || error == ECONNABORTED) continue;
      if ((error == EMFILE || error == ENFILE) && RefuseWithSpare(listening)) continue;
      errno = error;
      return Fd();
    }
    const Status admitted = Admit(fd.get());
    if (admitted.ok()) return fd;
    Refused(PeerName(fd.get()), admitted);
  }
}

bool Admission::RefuseWithSpare(int listening) {
  std::string peer;
  {
    MutexLock lock(&mu_);
    if (!spare_.ok()) {
      // Another thread of this process was faster the last time.
      spare_ = OpenSpare();
      if (!spare_.ok()) return false;
    }
    spare_.Reset();
    Fd fd = AcceptSocket(listening);
    if (fd.ok()) peer = PeerName(fd.get());
    fd.Reset();
    spare_ = OpenSpare();
  }
  if (peer.empty()) return false;
  Refused(peer, ResourceExhausted("all ", DescriptorLimit(), " file descriptors of this process are in use"));
  return true;
}

Status Admission::Admit(int fd) {
  const int64_t limit = DescriptorLimit();
  const int64_t room = std::max<int64_t>(limit - Reserve(limit), 4);
  // The system gives out the lowest free number, so at least as many descriptors are in use.
  if (fd >= room) {
    return ResourceExhausted(fd, " of this process's ", limit, " file descriptors are in use; connections leave ",
                             Reserve(limit), " of them to others (ulimit -n)");
  }
  const std::optional<uint64_t> cookie = Cookie(fd);
  if (!cookie.has_value()) return absl::OkStatus();  // a system on which connections cannot be told apart
  Connection connection{.fd = fd, .address = "", .peer = NormalPeer(PeerName(fd)), .since = options_.clock->Now()};
  if (const StatusOr<HostPort> end = ParseHostPort(connection.peer); end.ok()) connection.address = end->host;
  MutexLock lock(&mu_);
  Status allowed = CheckLimits(connection.address, room);
  if (!allowed.ok() && connection.since - swept_ >= kSweepInterval) {
    Sweep(connection.since);
    allowed = CheckLimits(connection.address, room);
  }
  MR_RETURN_IF_ERROR(allowed);
  // What is remembered of closed connections stays bounded.
  if (connections_.size() >= static_cast<size_t>(2 * room)) Sweep(connection.since);
  if (!connection.address.empty()) {
    Counts& counts = by_address_[connection.address];
    ++counts.all;
    ++counts.unsettled;
    by_peer_[connection.peer] = *cookie;
  }
  unsettled_.fetch_add(1, std::memory_order_relaxed);
  connections_.insert_or_assign(*cookie, std::move(connection));
  return absl::OkStatus();
}

Status Admission::CheckLimits(const std::string& address, int64_t room) const {
  const int64_t unsettled = std::min(options_.unsettled, room / 2);
  if (unsettled_.load(std::memory_order_relaxed) >= unsettled)
    return ResourceExhausted(unsettled, " connections have not completed their handshake");
  const auto it = address.empty() ? by_address_.end() : by_address_.find(address);
  if (it == by_address_.end()) return absl::OkStatus();
  const int64_t of_address = std::min(options_.unsettled_per_address, room / 3);
  if (it->second.unsettled >= of_address)
    return ResourceExhausted(of_address, " connections from ", address, " have not completed their handshake");
  if (it->second.all >= room / 2)
    return ResourceExhausted("it has ", it->second.all, " connections from ", address, " already");
  return absl::OkStatus();
}

void Admission::MarkSettled(Connection* connection) {
  if (std::exchange(connection->settled, true)) return;
  unsettled_.fetch_sub(1, std::memory_order_relaxed);
  if (!connection->address.empty()) --by_address_[connection->address].unsettled;
}

void Admission::Sweep(absl::Time now) {
  swept_ = now;
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto at = it++;
    Connection& connection = at->second;
    const bool open = Cookie(connection.fd) == at->first;
    if (!open || now - connection.since >= options_.handshake_timeout) MarkSettled(&connection);
    if (open) continue;
    if (!connection.address.empty()) {
      const auto counts = by_address_.find(connection.address);
      if (--counts->second.all == 0) by_address_.erase(counts);
      const auto peer = by_peer_.find(connection.peer);
      if (peer != by_peer_.end() && peer->second == at->first) by_peer_.erase(peer);
    }
    connections_.erase(at);
  }
}

void Admission::SettleAt(uint64_t cookie) {
  const auto it = connections_.find(cookie);
  if (it != connections_.end()) MarkSettled(&it->second);
}

void Admission::Settle(const std::string& peer) {
  if (!has_unsettled()) return;
  const std::string normal = NormalPeer(peer);
  const absl::Time now = options_.clock->Now();
  MutexLock lock(&mu_);
  const auto it = by_peer_.find(normal);
  if (it != by_peer_.end()) SettleAt(it->second);
  // Those that never make a call must not cost every call of others.
  if (now - swept_ >= options_.handshake_timeout) Sweep(now);
}

void Admission::SettleFd(int fd) {
  const std::optional<uint64_t> cookie = Cookie(fd);
  MutexLock lock(&mu_);
  if (cookie.has_value()) SettleAt(*cookie);
}

void Admission::Refused(const std::string& peer, const Status& why) {
  std::string counted;
  {
    MutexLock lock(&mu_);
    ++refused_;
    last_refusal_ = absl::StrCat(peer, ": ", why.message());
    const absl::Time now = options_.clock->Now();
    if (now - logged_at_ < kLogInterval) return;
    if (logged_ > 0)
      counted = absl::StrCat(" (", refused_, " refused so far, ", refused_ - logged_, " since the last line)");
    logged_ = refused_;
    logged_at_ = now;
  }
  MR_LOG(Warning, "refused a connection to ", options_.what, " from ", peer, ": ", why.message(), counted);
}

void Admission::AddTo(TransportStatus* status) {
  MutexLock lock(&mu_);
  Sweep(options_.clock->Now());
  status->incoming_connections += static_cast<int64_t>(connections_.size());
  status->excess_connections += refused_;
  if (!last_refusal_.empty()) status->last_excess = last_refusal_;
}

}  // namespace millrace::net
