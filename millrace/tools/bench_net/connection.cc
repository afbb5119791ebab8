#include "millrace/tools/bench_net/connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "millrace/net/address.h"

namespace millrace::bench_net {
namespace {

constexpr size_t kMaxLine = 256;
constexpr int kConnectMillis = 10000;

Status LastError(absl::string_view what) {
  if (errno == EAGAIN || errno == EWOULDBLOCK)
    return Unavailable("the other side has been silent for ", kSilenceSeconds, " s");
  if (errno == EPIPE || errno == ECONNRESET) return Unavailable("the connection ended");
  return Unavailable(what, ": ", strerror(errno));
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

StatusOr<Addresses> Resolve(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0) {
    return Unavailable("host '", host, "' cannot be resolved: ", gai_strerror(code));
  }
  return Addresses(found);
}

// Notices a dead host even while nothing is sent.
void SetUpTcp(int fd) {
  const int on = 1, idle = 10, interval = 5, count = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

// Returns errno, or 0.
int ConnectWithin(int fd, const addrinfo& address) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  if (connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    pollfd ready = {.fd = fd, .events = POLLOUT, .revents = 0};
    const int count = poll(&ready, 1, kConnectMillis);
    if (count == 0) return ETIMEDOUT;
    if (count < 0) return errno;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  fcntl(fd, F_SETFL, flags);
  return 0;
}

}  // namespace

Connection::Connection(Fd fd) : fd_(std::move(fd)) {
  const timeval limit = {.tv_sec = kSilenceSeconds, .tv_usec = 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

Status Connection::Send(const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(fd_.get(), at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return LastError("cannot send");
    at += sent;
    size -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

Status Connection::Receive(void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = recv(fd_.get(), at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return LastError("cannot receive");
    if (got == 0) return Unavailable("the connection ended");
    at += got;
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

Status Connection::SendLine(absl::string_view line) {
  const std::string text = absl::StrCat(line, "\n");
  return Send(text.data(), text.size());
}

StatusOr<std::string> Connection::ReadLine() {
  std::string line;
  while (line.size() < kMaxLine) {
    char c;
    MR_RETURN_IF_ERROR(Receive(&c, 1));
    if (c == '\n') return line;
    line.push_back(c);
  }
  return InvalidArgument("the other side does not speak the bench-net protocol");
}

StatusOr<TcpListener> ListenTcp(const std::string& host, int port) {
  const std::string where = net::JoinHostPort(host, port);
  MR_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(host, port, AI_PASSIVE));
  TcpListener listener;
  listener.fd = Fd(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!listener.fd.ok() || bind(listener.fd.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(listener.fd.get(), 16) != 0) {
    if (errno == EADDRINUSE)
      return AlreadyExists("cannot listen at ", where, ": the port is taken, another process listens there");
    return Unavailable("cannot listen at ", where, ": ", strerror(errno));
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  getsockname(listener.fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  listener.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                                    : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  return listener;
}

StatusOr<Connection> AcceptTcp(const TcpListener& listener, int seconds) {
  while (true) {
    pollfd ready = {.fd = listener.fd.get(), .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, seconds < 0 ? -1 : seconds * 1000);
    if (count == 0) return Unavailable("nobody has connected for ", seconds, " s");
    if (count < 0 && errno == EINTR) continue;
    Fd fd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.ok() && (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN)) continue;
    if (!fd.ok()) return Unavailable("cannot accept a connection: ", strerror(errno));
    SetUpTcp(fd.get());
    return Connection(std::move(fd));
  }
}

StatusOr<Connection> ConnectTcp(const std::string& host, int port) {
  MR_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(host, port, 0));
  int error = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Fd fd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    error = fd.ok() ? ConnectWithin(fd.get(), *address) : errno;
    if (error != 0) continue;
    SetUpTcp(fd.get());
    return Connection(std::move(fd));
  }
  return Unavailable("cannot connect to ", net::JoinHostPort(host, port), ": ", strerror(error));
}

}  // namespace millrace::bench_net
