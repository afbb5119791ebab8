#include "millrace/launch/job_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/base/clock.h"
#include "millrace/base/file.h"

namespace millrace::launch {
namespace {

constexpr size_t kMaxAnswers = 16;  // concurrent answers; further clients wait in the listener's queue
constexpr size_t kMaxText = 64 << 20;

std::string Prefix() { return absl::StrCat("millrace-launch-", getuid(), "-"); }

socklen_t Address(int pid, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const std::string name = absl::StrCat(Prefix(), pid);
  // The first byte stays 0: an abstract name leaves no file behind.
  std::memcpy(address->sun_path + 1, name.data(), std::min(name.size(), sizeof(address->sun_path) - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool PeerMay(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == getuid() || peer.uid == 0);
}

}  // namespace

StatusOr<JobSocket> JobSocket::Open() {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t size = Address(getpid(), &address);
  if (!fd.ok() || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd.get(), 16) != 0) {
    return Unavailable("cannot open the socket for millrace status: ", strerror(errno));
  }
  return JobSocket(std::move(fd));
}

std::vector<int> JobSocket::fds() const {
  std::vector<int> fds = {answers_.size() < kMaxAnswers ? listener_.get() : -1};
  for (const Answer& answer : answers_) fds.push_back(answer.fd.get());
  return fds;
}

void JobSocket::Serve(const std::function<std::string()>& tell) {
  while (answers_.size() < kMaxAnswers) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.ok()) break;
    if (PeerMay(fd.get())) answers_.push_back({std::move(fd), tell()});
  }
  for (size_t i = 0; i < answers_.size();) {
    Answer& answer = answers_[i];
    const ssize_t size = send(answer.fd.get(), answer.text.data(), answer.text.size(), MSG_NOSIGNAL);
    if (size > 0) answer.text.erase(0, size);
    if (answer.text.empty() || (size < 0 && errno != EAGAIN && errno != EINTR)) {
      answers_.erase(answers_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

std::vector<int> RunningJobs() {
  std::vector<int> pids;
  const StatusOr<std::string> table = ReadWholeFile(FileSystem::Posix(), "/proc/net/unix");
  if (!table.ok()) return pids;
  const std::string prefix = absl::StrCat("@", Prefix());
  for (const absl::string_view line : absl::StrSplit(*table, '\n')) {
    const size_t at = line.find(prefix);
    int pid;
    if (at != absl::string_view::npos && absl::SimpleAtoi(line.substr(at + prefix.size()), &pid)) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  return pids;
}

StatusOr<std::string> AskJob(int pid, absl::Duration timeout) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t size = Address(pid, &address);
  if (!fd.ok() || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
    return NotFound("no job of yours runs with pid ", pid);
  if (!PeerMay(fd.get())) return absl::PermissionDeniedError(absl::StrCat("pid ", pid, " is another user's"));
  const absl::Time deadline = Clock::Real()->Now() + timeout;
  std::string text;
  while (text.size() < kMaxText) {
    pollfd ready = {fd.get(), POLLIN, 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline - Clock::Real()->Now());
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) == 0) {
      return DeadlineExceeded("the launcher with pid ", pid, " does not answer: it hangs or is suspended");
    }
    char bytes[64 << 10];
    const ssize_t got = read(fd.get(), bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unavailable("the launcher with pid ", pid, " hung up");
    if (got == 0) return text;
    text.append(bytes, got);
  }
  return DataLoss("the launcher with pid ", pid, " sent too much");
}

}  // namespace millrace::launch
