#include "millrace/net/lane/sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "millrace/base/clock.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::net {
namespace {

constexpr int kBacklog = 4096;

Fd NewSocket(int family) { return Fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

StatusOr<socklen_t> AbstractName(const std::string& name, sockaddr_un* to) {
  *to = {};
  to->sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof(to->sun_path))
    return InvalidArgument("a Unix socket's name of ", name.size(), " bytes");
  std::memcpy(to->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Status SystemError(absl::string_view what, int error) { return Unavailable(what, ": ", std::strerror(error)); }

using AddressPtr = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null if the host is not a numeric address.
AddressPtr NumericAddress(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) found = nullptr;
  return AddressPtr(found, freeaddrinfo);
}

// The identity of one of this process's namespaces, from its link in /proc.
std::string Namespace(const char* kind) {
  char text[64];
  const ssize_t size = readlink(absl::StrCat("/proc/self/ns/", kind).c_str(), text, sizeof(text));
  return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
}

}  // namespace

StatusOr<Fd> ListenUnix(const std::string& name) {
  sockaddr_un to;
  MR_ASSIGN_OR_RETURN(const socklen_t size, AbstractName(name, &to));
  Fd fd = NewSocket(AF_UNIX);
  if (!fd.ok()) return SystemError("socket", errno);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&to), size) != 0) return SystemError("bind to a Unix socket", errno);
  if (listen(fd.get(), kBacklog) != 0) return SystemError("listen at a Unix socket", errno);
  return fd;
}

StatusOr<Fd> ConnectUnix(const std::string& name) {
  sockaddr_un to;
  MR_ASSIGN_OR_RETURN(const socklen_t size, AbstractName(name, &to));
  Fd fd = NewSocket(AF_UNIX);
  if (!fd.ok()) return SystemError("socket", errno);
  // Non-blocking: a full backlog is an error too.
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), size) != 0)
    return SystemError("connect to a Unix socket", errno);
  // For data that is not read out of the sender's memory; the system may grant less.
  const int bytes = 4 << 20;
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  return fd;
}

bool IsNumericHost(const std::string& host) { return NumericAddress(host, 0) != nullptr; }

StatusOr<Fd> ConnectTcp(absl::Span<const std::string> hosts, int port, absl::Time deadline, int stop) {
  Status last = Unavailable("there is no address to connect to");
  for (const std::string& host : hosts) {
    const AddressPtr at = NumericAddress(host, port);
    Fd fd = at != nullptr ? NewSocket(at->ai_family) : Fd();
    if (!fd.ok()) continue;
    int error = connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      last = WaitFor(fd.get(), POLLOUT, deadline, stop);
      if (absl::IsCancelled(last)) return last;
      if (!last.ok()) continue;
      socklen_t size = sizeof(error);
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      SetTcpOptions(fd.get());
      return fd;
    }
    last = SystemError(absl::StrCat("connect to ", JoinHostPort(host, port)), error);
  }
  return last;
}

StatusOr<pid_t> PeerProcess(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return SystemError("SO_PEERCRED", errno);
  if (peer.uid != geteuid())
    return absl::PermissionDeniedError(absl::StrCat("process ", peer.pid, " is another user's"));
  return peer.pid;
}

Status WaitFor(int fd, short events, absl::Time deadline, int stop) {
  for (;;) {
    pollfd fds[2] = {{fd, events, 0}, {stop, POLLIN, 0}};
    const int64_t left = absl::ToInt64Milliseconds(deadline - Clock::Real()->Now());
    if (left <= 0) return DeadlineExceeded("no answer in time");
    const int count = poll(fds, 2, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (count < 0 && errno != EINTR) return SystemError("poll", errno);
    if (count > 0 && fds[1].revents != 0) return Cancelled("the transport ends");
    if (count > 0 && fds[0].revents != 0) return absl::OkStatus();
  }
}

bool PeerHungUp(int fd) {
  pollfd poll_fd{fd, POLLRDHUP, 0};
  return poll(&poll_fd, 1, 0) != 0;
}

const std::string& HostIdentity() {
  static const std::string* const identity = [] {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return new std::string(absl::StrCat(boot, " ", Namespace("net"), " ", Namespace("pid"), " ", Namespace("user")));
  }();
  return *identity;
}

}  // namespace millrace::net
