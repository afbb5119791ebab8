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

constexpr size_t kMaxClients = 32;  // further ones wait in the listener's queue
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

std::vector<pollfd> JobSocket::polls() const {
  std::vector<pollfd> polls = {{clients_.size() < kMaxClients ? listener_.get() : -1, POLLIN, 0}};
  for (const Client& client : clients_)
    polls.push_back({client.fd.get(), static_cast<short>(client.answered ? POLLOUT : POLLIN), 0});
  return polls;
}

void JobSocket::Serve(const Tell& tell) {
  while (clients_.size() < kMaxClients) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.ok()) break;
    if (PeerMay(fd.get())) clients_.push_back({.fd = std::move(fd)});
  }
  std::erase_if(clients_, [&](Client& client) { return !Continue(&client, tell); });
}

bool JobSocket::Continue(Client* client, const Tell& tell) {
  if (!client->answered && !Receive(client, tell)) return false;
  return !client->answered || Send(client);
}

bool JobSocket::Receive(Client* client, const Tell& tell) {
  char bytes[JobRequest::kMaxLine];
  const ssize_t size = recv(client->fd.get(), bytes, sizeof(bytes), 0);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0 || client->awaits_end) return false;
  client->request.append(bytes, size);
  const size_t end = client->request.find('\n');
  if (end == std::string::npos) return client->request.size() < JobRequest::kMaxLine;
  const StatusOr<JobRequest> request = JobRequest::Parse(absl::string_view(client->request).substr(0, end));
  if (!request.ok()) return false;
  client->awaits_end = request->kind == JobRequest::Kind::kEnd;
  if (client->awaits_end) return true;
  client->text = tell(*request);
  client->answered = true;
  return true;
}

bool JobSocket::Send(Client* client) {
  const ssize_t size = send(client->fd.get(), client->text.data(), client->text.size(), MSG_NOSIGNAL);
  if (size > 0) client->text.erase(0, size);
  return !client->text.empty() && (size >= 0 || errno == EAGAIN || errno == EINTR);
}

void JobSocket::End(const std::string& report, absl::Duration patience) {
  std::erase_if(clients_, [](const Client& client) { return !client.awaits_end; });
  for (Client& client : clients_) {
    client.text = report;
    client.answered = true;
  }
  const absl::Time deadline = Clock::Real()->Now() + patience;
  while (true) {
    std::erase_if(clients_, [](Client& client) { return !Send(&client); });
    const int64_t left = absl::ToInt64Milliseconds(deadline - Clock::Real()->Now());
    if (clients_.empty() || left <= 0) return clients_.clear();
    std::vector<pollfd> ready = polls();
    ready[0].fd = -1;
    poll(ready.data(), ready.size(), static_cast<int>(left));
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

namespace {

// A connection to the launcher, with the request sent.
StatusOr<Fd> Request(int pid, const JobRequest& request) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t size = Address(pid, &address);
  if (!fd.ok() || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
    return NotFound("no job of yours runs with pid ", pid);
  if (!PeerMay(fd.get())) return absl::PermissionDeniedError(absl::StrCat("pid ", pid, " is another user's"));
  const std::string line = request.ToLine();
  // A new socket's buffer takes the whole line.
  if (send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return NotFound("the job with pid ", pid, " has ended");
  return fd;
}

}  // namespace

StatusOr<std::string> AskJob(int pid, absl::Duration timeout, const JobRequest& request) {
  MR_ASSIGN_OR_RETURN(const Fd fd, Request(pid, request));
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

StatusOr<JobEnd> JobEnd::Watch(int pid) {
  MR_ASSIGN_OR_RETURN(Fd fd, Request(pid, {.kind = JobRequest::Kind::kEnd}));
  return JobEnd(std::move(fd));
}

bool JobEnd::Wait(absl::Duration timeout, int wake) {
  const absl::Time deadline = Clock::Real()->Now() + timeout;
  while (!ended_) {
    pollfd ready[] = {{fd_.get(), POLLIN, 0}, {wake, POLLIN, 0}};
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - Clock::Real()->Now()));
    if (poll(ready, 2, static_cast<int>(left)) <= 0 && left <= 0) return false;
    if (ready[1].revents != 0) return false;
    if (ready[0].revents == 0) continue;
    char bytes[64 << 10];
    const ssize_t size = read(fd_.get(), bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    ended_ = size <= 0 || report_.size() > kMaxText;
    if (size > 0) report_.append(bytes, size);
  }
  return true;
}

}  // namespace millrace::launch
