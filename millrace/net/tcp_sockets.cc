#include "millrace/net/tcp_sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace millrace::net {
namespace {

// The kernel caps it (net.core.somaxconn).
constexpr int kTcpBacklog = 4096;

// A name for bind. The host is numeric.
struct SocketName {
  SocketName(const std::string& host, int port) : v6(absl::StrContains(host, ":")) {
    if (v6) {
      auto* const to = reinterpret_cast<sockaddr_in6*>(&storage);
      to->sin6_family = AF_INET6;
      to->sin6_port = htons(static_cast<uint16_t>(port));
      inet_pton(AF_INET6, host.c_str(), &to->sin6_addr);
      size = sizeof(*to);
    } else {
      auto* const to = reinterpret_cast<sockaddr_in*>(&storage);
      to->sin_family = AF_INET;
      to->sin_port = htons(static_cast<uint16_t>(port));
      inet_pton(AF_INET, host.c_str(), &to->sin_addr);
      size = sizeof(*to);
    }
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int port() const {
    return ntohs(v6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                    : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  }

  const bool v6;
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// Adds a socket to `listeners`, at their port, which is set if it was 0. Returns 0 or errno.
int ListenAt(const std::string& host, TcpListeners* listeners) {
  SocketName name(host, listeners->port);
  Fd fd(socket(name.v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return errno;
  const auto set = [&fd](int level, int option, int value) {
    setsockopt(fd.get(), level, option, &value, sizeof(value));
  };
  // Connections that linger do not hold the port; listeners do.
  set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (name.v6) set(IPPROTO_IPV6, IPV6_V6ONLY, host == "::" ? 0 : 1);  // all interfaces: IPv4's too
  if (bind(fd.get(), name.get(), name.size) != 0 || listen(fd.get(), kTcpBacklog) != 0 ||
      getsockname(fd.get(), name.get(), &name.size) != 0)
    return errno;
  listeners->port = name.port();
  listeners->sockets.push_back(std::move(fd));
  return 0;
}

bool NoSuchFamily(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

Status ListenError(const HostPort& address, int error) {
  const std::string text = JoinHostPort(address.host, address.port);
  if (error == EADDRINUSE)
    return AlreadyExists("cannot listen at ", text, ": the port is taken, another process listens there");
  return Unavailable("cannot listen at ", text, ": ", std::strerror(error));
}

}  // namespace

StatusOr<TcpListeners> ListenTcp(const HostPort& address) {
  TcpListeners listeners;
  listeners.port = address.port;
  if (!IsLoopback(address.host)) {
    int error = ListenAt("::", &listeners);
    if (NoSuchFamily(error)) error = ListenAt("0.0.0.0", &listeners);
    if (error != 0) return ListenError(address, error);
    return listeners;
  }
  if (!IsLocalhost(address.host)) {
    if (const int error = ListenAt(address.host, &listeners); error != 0) return ListenError(address, error);
    return listeners;
  }
  // A client of localhost may come either way, so both must be ours. A port that the system chose for one may be taken
  // for the other.
  for (int attempt = 0;; ++attempt) {
    listeners.sockets.clear();
    listeners.port = address.port;
    if (const int error = ListenAt("127.0.0.1", &listeners); error != 0) return ListenError(address, error);
    const int error = ListenAt("::1", &listeners);
    if (error == 0 || NoSuchFamily(error)) return listeners;
    if (error != EADDRINUSE || address.port != 0 || attempt == 10) return ListenError(address, error);
  }
}

Fd AcceptSocket(int listening) { return Fd(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

void SetTcpOptions(int fd) {
  const auto set = [fd](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A silent host is probed after 4 s, every 2 s, and given up 10 s after its last word; so is one that does not
  // acknowledge what was sent.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 10'000);
}

std::string PeerName(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "unknown";
  char name[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto& from = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &from.sin_addr, name, sizeof(name));
    return absl::StrCat("ipv4:", JoinHostPort(name, ntohs(from.sin_port)));
  }
  if (storage.ss_family == AF_INET6) {
    const auto& from = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &from.sin6_addr, name, sizeof(name));
    return absl::StrCat("ipv6:", JoinHostPort(name, ntohs(from.sin6_port)));
  }
  ucred peer{};
  size = sizeof(peer);
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return absl::StrCat("unix:process ", peer.pid);
}

}  // namespace millrace::net
