#include "millrace/net/grpc/bind_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "millrace/base/fd.h"

namespace millrace::net {
namespace {

// 0 or errno. A port of 0 is set to one that is free.
int TryBind(const std::string& host, int* port) {
  sockaddr_storage storage{};
  socklen_t size;
  const bool v6 = absl::StrContains(host, ":");
  if (v6) {
    auto* const to = reinterpret_cast<sockaddr_in6*>(&storage);
    to->sin6_family = AF_INET6;
    to->sin6_port = htons(*port);
    inet_pton(AF_INET6, host.c_str(), &to->sin6_addr);
    size = sizeof(*to);
  } else {
    auto* const to = reinterpret_cast<sockaddr_in*>(&storage);
    to->sin_family = AF_INET;
    to->sin_port = htons(*port);
    inet_pton(AF_INET, host.c_str(), &to->sin_addr);
    size = sizeof(*to);
  }
  const Fd fd(socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return errno;
  // As gRPC binds: connections that linger do not hold the port, listeners do.
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  auto* const name = reinterpret_cast<sockaddr*>(&storage);
  const int error = bind(fd.get(), name, size) == 0 ? 0 : errno;
  if (error == 0 && *port == 0 && getsockname(fd.get(), name, &size) == 0) {
    *port = ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                     : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
  }
  return error;
}

bool Missing(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

Status BindError(const HostPort& address, int error) {
  const std::string text = JoinHostPort(address.host, address.port);
  if (error == EADDRINUSE)
    return AlreadyExists("cannot listen at ", text, ": the port is taken, another process listens there");
  return Unavailable("cannot listen at ", text, ": ", std::strerror(error));
}

}  // namespace

StatusOr<BindPlan> PlanBind(const HostPort& address) {
  BindPlan plan;
  plan.port = address.port;
  if (!IsLoopback(address.host)) {
    // gRPC takes this for IPv4 as well, alone where there is no IPv6.
    plan.hosts = {"::"};
    int error = TryBind("::", &plan.port);
    if (Missing(error)) error = TryBind("0.0.0.0", &plan.port);
    if (error != 0) return BindError(address, error);
    plan.port = address.port;
    return plan;
  }
  if (!absl::EqualsIgnoreCase(address.host, "localhost")) {
    plan.hosts = {address.host};
    if (const int error = TryBind(address.host, &plan.port); error != 0) return BindError(address, error);
    plan.port = address.port;
    return plan;
  }
  // Who asks for localhost may come either way, so both must be ours.
  for (int attempt = 0;; ++attempt) {
    plan.port = address.port;
    plan.hosts = {"127.0.0.1"};
    if (const int error = TryBind("127.0.0.1", &plan.port); error != 0) return BindError(address, error);
    const int error = TryBind("::1", &plan.port);
    if (error == 0) plan.hosts.push_back("::1");
    if (error == 0 || Missing(error)) return plan;
    if (error != EADDRINUSE || address.port != 0 || attempt == 10) return BindError(address, error);
  }
}

}  // namespace millrace::net
