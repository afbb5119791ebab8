#include "millrace/launch/meeting/join_meeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "millrace/base/clock.h"
#include "millrace/net/address.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kConnectLimit = absl::Seconds(3), kAnswerLimit = absl::Seconds(10);
// Between two rounds: short at first, since the processes of a job start together, and longer the more there are, so
// that they do not take the time in which rank 0 could start.
constexpr int kFirstPauseMs = 4, kLongestPauseMs = 250;
constexpr int kRanksPerMs = 4;
constexpr int kQuickRounds = 100;
constexpr int kRoundsToAllPorts = 8;
constexpr size_t kMaxMeetingHosts = 64;

int MillisecondsUntil(absl::Time deadline) {
  return static_cast<int>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(deadline - Clock::Real()->Now()) + 1, 0, 600000));
}

// Waits for `events`; false when the time is over.
bool WaitFor(int fd, short events, absl::Time deadline) {
  pollfd polled = {fd, events, 0};
  while (Clock::Real()->Now() < deadline) {
    if (poll(&polled, 1, MillisecondsUntil(deadline)) > 0) return true;
  }
  return false;
}

Status Connect(int fd, const sockaddr* address, socklen_t size, absl::Time deadline) {
  if (connect(fd, address, size) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS && errno != EAGAIN) return Unavailable(strerror(errno));
  if (!WaitFor(fd, POLLOUT, deadline)) return Unavailable("no answer");
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? absl::OkStatus() : Unavailable(strerror(error));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

StatusOr<Addresses> LookUp(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return Unavailable("the name does not resolve (", gai_strerror(error), ")");
  return Addresses(found, freeaddrinfo);
}

StatusOr<Fd> ConnectTcp(const addrinfo* addresses, int port, absl::Time deadline) {
  Status why = Unavailable("no address");
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    const bool is_ipv6 = at->ai_family == AF_INET6;
    if (!is_ipv6 && at->ai_family != AF_INET) continue;
    (is_ipv6 ? reinterpret_cast<sockaddr_in6*>(at->ai_addr)->sin6_port
             : reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_port) = htons(static_cast<uint16_t>(port));
    Fd fd(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.ok()) continue;
    why = Connect(fd.get(), at->ai_addr, at->ai_addrlen, std::min(deadline, Clock::Real()->Now() + kConnectLimit));
    if (!why.ok()) continue;
    net::SetTcpOptions(fd.get());
    return fd;
  }
  return why;
}

StatusOr<Fd> ConnectLocal(const std::string& name, absl::Time deadline) {
  const LocalMeetingAddress address(name);
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return Unavailable(strerror(errno));
  MR_RETURN_IF_ERROR(Connect(fd.get(), address.get(), address.size, deadline));
  if (!IsSameUser(fd.get())) return Unavailable("a process of another user");
  return fd;
}

// Reads until `done`, byte by byte of what is expected.
Status ReadUntil(int fd, absl::Time deadline, std::string* text,
                 absl::FunctionRef<StatusOr<bool>(absl::string_view)> done) {
  char bytes[4096];
  while (true) {
    MR_ASSIGN_OR_RETURN(const bool complete, done(*text));
    if (complete) return absl::OkStatus();
    if (!WaitFor(fd, POLLIN, deadline)) return Unavailable("somebody who does not answer");
    const ssize_t size = read(fd, bytes, sizeof(bytes));
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return Unavailable("somebody who ended the connection");
    text->append(bytes, size);
  }
}

Status WriteAll(int fd, absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t size = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size > 0) {
      bytes.remove_prefix(size);
    } else if (errno == EAGAIN) {
      if (!WaitFor(fd, POLLOUT, deadline)) return Unavailable("somebody who reads nothing");
    } else if (errno != EINTR) {
      return Unavailable(strerror(errno));
    }
  }
  return absl::OkStatus();
}

// The nonce of this job's meeting place.
StatusOr<std::string> ReadGreeting(int fd, const std::string& label, absl::Time deadline) {
  std::string text;
  MR_RETURN_IF_ERROR(ReadUntil(fd, deadline, &text, [](absl::string_view read) -> StatusOr<bool> {
    if (read.size() > kMaxMeetingGreeting) return Unavailable("a stranger, which talks without end");
    // A stranger is recognised by its first words.
    const absl::string_view expected = "millrace meeting";
    if (!read.empty() && read.substr(0, expected.size()) != expected.substr(0, read.size()))
      return Unavailable("a stranger, which says '", absl::CHexEscape(read.substr(0, 40)), "'");
    return read.find('\n') != absl::string_view::npos;
  }));
  const StatusOr<MeetingGreeting> greeting = MeetingGreeting::Decode(text.substr(0, text.find('\n')));
  if (!greeting.ok()) return Unavailable(greeting.status().message());
  if (greeting->label != label) return Unavailable("another run, ", absl::CHexEscape(greeting->label));
  return greeting->nonce;
}

StatusOr<JoinedMeeting> Introduce(Fd fd, const MeetingPoint& point, MeetingHello hello, absl::Time deadline) {
  deadline = std::min(deadline, Clock::Real()->Now() + kAnswerLimit);
  MR_ASSIGN_OR_RETURN(hello.nonce, ReadGreeting(fd.get(), point.label, deadline));
  MR_ASSIGN_OR_RETURN(hello.key, net::RandomBytes(net::kSealKeySize));
  const StatusOr<std::string> sealed = point.guard->Seal(hello.Encode());
  if (!sealed.ok()) return FailedPrecondition(sealed.status().message());  // the same at every other address
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(sealed->size() >> (8 * i)));
  MR_RETURN_IF_ERROR(WriteAll(fd.get(), bytes + *sealed, deadline));
  JoinedMeeting joined = {.socket = std::move(fd), .channel = std::make_shared<SealedChannel>(hello.key, true)};
  // The records' bytes arrive with their order; the welcome is the first record by itself.
  std::string text;
  size_t opened = 0;
  MR_RETURN_IF_ERROR(ReadUntil(joined.socket.get(), deadline, &text, [&](absl::string_view read) -> StatusOr<bool> {
    const Status whole = joined.channel->in.Open(read.substr(opened), &joined.received);
    opened = read.size();
    if (!whole.ok()) return Unavailable("somebody without ", point.guard->name());
    return joined.received.find('\n') != std::string::npos;
  }));
  const size_t end = joined.received.find('\n');
  const std::string answer = joined.received.substr(0, end);
  joined.received.erase(0, end + 1);
  if (answer != kMeetingWelcome) return FailedPrecondition(answer);
  return joined;
}

}  // namespace

StatusOr<JoinedMeeting> JoinMeeting(const MeetingPoint& point, MeetingHello hello, absl::Duration limit) {
  const absl::Time deadline = Clock::Real()->Now() + limit;
  std::map<std::string, std::string> found;  // at each address, the last
  const auto attempt = [&](const std::string& name, StatusOr<Fd> fd) -> StatusOr<JoinedMeeting> {
    StatusOr<JoinedMeeting> joined =
        fd.ok() ? Introduce(*std::move(fd), point, hello, deadline) : StatusOr<JoinedMeeting>(fd.status());
    // An attempt that the end of the time has cut short says nothing new.
    const bool cut = Clock::Real()->Now() >= deadline && found.contains(name);
    if (!joined.ok() && !absl::IsFailedPrecondition(joined.status()) && !cut)
      found[name] = std::string(joined.status().message());
    return joined;
  };
  int pause = std::clamp(hello.size / kRanksPerMs, kFirstPauseMs, kLongestPauseMs);
  for (int round = 0;; ++round) {
    // Rank 0 takes the first port that is free: almost always the first of all.
    const bool all_ports = round % kRoundsToAllPorts == kRoundsToAllPorts - 1 || round > kQuickRounds;
    if (round > kQuickRounds) pause = std::min(2 * pause, kLongestPauseMs);
    if (!point.local.empty()) {
      StatusOr<JoinedMeeting> joined = attempt("this host", ConnectLocal(point.local, deadline));
      if (joined.ok() || absl::IsFailedPrecondition(joined.status())) return joined;
    }
    for (size_t host = 0; host < std::min(point.hosts.size(), kMaxMeetingHosts); ++host) {
      const StatusOr<Addresses> addresses = LookUp(point.hosts[host]);
      for (const int port : absl::MakeConstSpan(point.ports).subspan(0, all_ports ? point.ports.size() : 1)) {
        StatusOr<JoinedMeeting> joined =
            attempt(net::JoinHostPort(point.hosts[host], port),
                    addresses.ok() ? ConnectTcp(addresses->get(), port, deadline) : StatusOr<Fd>(addresses.status()));
        if (joined.ok() || absl::IsFailedPrecondition(joined.status())) return joined;
        if (Clock::Real()->Now() >= deadline) break;
      }
    }
    if (Clock::Real()->Now() >= deadline) break;
    poll(nullptr, 0, std::min(pause, MillisecondsUntil(deadline)));
  }
  return absl::DeadlineExceededError(absl::StrCat("rank ", hello.rank, " did not find rank 0 of ", point.label,
                                                  " within ", absl::FormatDuration(limit), ": ",
                                                  absl::StrJoin(found, ", ", absl::PairFormatter(": "))));
}

}  // namespace millrace::launch
