#include "millrace/launch/task_claim.h"

#include <poll.h>
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

bool IsOwnUser(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

}  // namespace

TaskClaim TaskClaim::Take(const std::string& name, absl::Duration limit) {
  TaskClaim claim;
  if (name.empty()) return claim;
  const AbstractAddress address(name);
  const absl::Time deadline = Clock::Real()->Now() + limit;
  bool asked = false;
  while (true) {
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.ok()) return claim;
    if (bind(socket.get(), address.get(), address.size) == 0 && listen(socket.get(), 4) == 0) {
      claim.socket_ = std::move(socket);
      return claim;
    }
    if (errno != EADDRINUSE || Clock::Real()->Now() >= deadline) return claim;
    // The connection itself is the question.
    if (!asked) asked = connect(socket.get(), address.get(), address.size) == 0;
    poll(nullptr, 0, kBetweenTriesMs);
  }
}

bool TaskClaim::IsAsked() {
  const Fd asking(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return asking.ok() && IsOwnUser(asking.get());
}

}  // namespace millrace::launch
