#include "millrace/launch/task_claim.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "millrace/base/clock.h"

namespace millrace::launch {
namespace {

constexpr int kBetweenTriesMs = 50;
constexpr absl::Duration kEndsWhenKilled = absl::Seconds(5);

struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    const std::string full = absl::StrCat("millrace-keeper/", getuid(), "/", name);
    address.sun_family = AF_UNIX;
    const size_t length = std::min(full.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, full.data(), length);  // after the 0 that makes it abstract
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address = {};
  socklen_t size = 0;
};

// The process of this user at the other end of a connection; 0: it is another user's.
pid_t OwnPeer(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return known && peer.uid == getuid() ? peer.pid : 0;
}

}  // namespace

TaskClaim TaskClaim::Take(const std::string& name, absl::Duration limit) {
  TaskClaim claim;
  if (name.empty()) return claim;
  const AbstractAddress address(name);
  absl::Time deadline = Clock::Real()->Now() + limit;
  Fd question;  // the connection itself
  while (true) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.ok()) return claim;
    if (bind(socket.get(), address.get(), address.size) == 0 && listen(socket.get(), 4) == 0) {
      claim.socket_ = std::move(socket);
      return claim;
    }
    if (errno != EADDRINUSE) return claim;
    if (!question.ok() && connect(socket.get(), address.get(), address.size) == 0) question = std::move(socket);
    if (Clock::Real()->Now() >= deadline) {
      // It is suspended, or stuck. The claim is free as soon as it is gone.
      const pid_t holder = question.ok() ? OwnPeer(question.get()) : 0;
      if (holder <= 1 || holder == getpid() || kill(holder, SIGKILL) != 0) return claim;
      question = Fd();
      deadline = Clock::Real()->Now() + kEndsWhenKilled;
    }
    poll(nullptr, 0, kBetweenTriesMs);
  }
}

bool TaskClaim::IsAsked() {
  const Fd asking(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return asking.ok() && OwnPeer(asking.get()) != 0;
}

}  // namespace millrace::launch
