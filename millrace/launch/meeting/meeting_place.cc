#include "millrace/launch/meeting/meeting_place.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "millrace/base/clock.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::launch {
namespace {

// For a guest to say its hello.
constexpr absl::Duration kGuestLimit = absl::Seconds(10);
constexpr size_t kMaxGuests = 512;
constexpr int kLocalBacklog = 1024;

StatusOr<Fd> ListenLocal(const std::string& name) {
  const LocalMeetingAddress address(name);
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return Unavailable(strerror(errno));
  if (bind(fd.get(), address.get(), address.size) != 0 || listen(fd.get(), kLocalBacklog) != 0)
    return AlreadyExists("another process is at the meeting place '", name, "' of this host");
  return fd;
}

}  // namespace

StatusOr<MeetingPlace> MeetingPlace::Open(Options options) {
  MeetingPlace place(std::move(options));
  const MeetingPoint& point = place.options_.point;
  if (!point.local.empty()) {
    MR_ASSIGN_OR_RETURN(Fd fd, ListenLocal(point.local));
    place.listening_.push_back(std::move(fd));
    place.name_ = "this host";
    return place;
  }
  Status why = InvalidArgument("no port");
  const std::string host = point.hosts.empty() ? "localhost" : point.hosts[0];
  for (const int port : point.ports) {
    StatusOr<net::TcpListeners> listeners = net::ListenTcp({host, port});
    if (listeners.ok()) {
      place.listening_ = std::move(listeners->sockets);
      place.name_ = net::JoinHostPort(host, listeners->port);
      return place;
    }
    why = listeners.status();
    if (!absl::IsAlreadyExists(why)) break;
  }
  return why;
}

void MeetingPlace::AddTo(std::vector<pollfd>* fds) const {
  // Those who find no room wait in the backlog.
  const short accepts = guests_.size() < kMaxGuests ? POLLIN : 0;
  for (const Fd& fd : listening_) fds->push_back({fd.get(), accepts, 0});
  for (const Guest& guest : guests_) fds->push_back({guest.socket.get(), POLLIN, 0});
}

absl::Time MeetingPlace::next_timer() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Guest& guest : guests_) next = std::min(next, guest.deadline);
  return next;
}

void MeetingPlace::Accept() {
  for (const Fd& listening : listening_) {
    while (guests_.size() < kMaxGuests) {
      Guest guest = {.socket = net::AcceptSocket(listening.get()), .deadline = Clock::Real()->Now() + kGuestLimit};
      if (!guest.socket.ok()) break;
      const bool local = !options_.point.local.empty();
      guest.from = net::PeerName(guest.socket.get());
      if (local && !IsSameUser(guest.socket.get())) continue;
      if (!local) net::SetTcpOptions(guest.socket.get());
      StatusOr<std::string> nonce = net::RandomBytes(16);
      if (!nonce.ok()) return;
      guest.nonce = absl::BytesToHexString(*nonce);
      const std::string greeting = MeetingGreeting{guest.nonce, options_.point.label}.Encode();
      // A new connection's buffer takes it.
      if (send(guest.socket.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(greeting.size()))
        continue;
      guests_.push_back(std::move(guest));
    }
  }
}

bool MeetingPlace::Hear(Guest* guest, StatusOr<MeetingHello>* hello) {
  char bytes[4096];
  while (true) {
    const ssize_t size = read(guest->socket.get(), bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size <= 0) {
      *hello = absl::CancelledError("it ended the connection");
      return true;
    }
    guest->received.append(bytes, size);
    if (guest->received.size() > kMaxMeetingHello + 4) break;
  }
  size_t size = 0;
  for (int i = 0; guest->received.size() >= 4 && i < 4; ++i)
    size |= static_cast<size_t>(static_cast<unsigned char>(guest->received[i])) << (8 * i);
  if (size > kMaxMeetingHello) {
    *hello = InvalidArgument("it is a stranger: it said '", absl::CHexEscape(guest->received.substr(0, 40)), "'");
    return true;
  }
  if (guest->received.size() < 4 || guest->received.size() < 4 + size) {
    if (Clock::Real()->Now() < guest->deadline) return false;
    *hello = absl::DeadlineExceededError("it said nothing in time");
    return true;
  }
  StatusOr<std::string> opened = options_.point.guard->Open(absl::string_view(guest->received).substr(4, size));
  if (!opened.ok()) {
    *hello = absl::PermissionDeniedError(
        absl::StrCat("it does not have ", options_.point.guard->name(), ": ", opened.status().message()));
    return true;
  }
  *hello = MeetingHello::Decode(*opened);
  if (hello->ok() && (*hello)->nonce != guest->nonce) *hello = InvalidArgument("it repeats what another one has said");
  return true;
}

Status MeetingPlace::Check(const MeetingHello& hello) const {
  if (hello.rank < 0 || hello.rank >= options_.size || hello.size != options_.size) {
    return InvalidArgument("it is rank ", hello.rank, " of ", hello.size, ", but there are ", options_.size, " tasks");
  }
  if (hello.jobs != options_.jobs)
    return InvalidArgument("rank ", hello.rank, " was asked for ", hello.jobs, ", and rank 0 for ", options_.jobs);
  return absl::OkStatus();
}

void MeetingPlace::Serve(const std::function<std::string(const Arrival&)>& admit,
                         const std::function<void(Arrival)>& on_arrival,
                         const std::function<void(const std::string&)>& on_refused) {
  Accept();
  std::vector<Guest> waiting;
  for (Guest& guest : std::exchange(guests_, {})) {
    StatusOr<MeetingHello> hello = Unavailable("");
    if (!Hear(&guest, &hello)) {
      waiting.push_back(std::move(guest));
      continue;
    }
    if (!hello.ok()) {
      // One that looked whether this is its meeting place has seen that it is not.
      if (!absl::IsCancelled(hello.status())) on_refused(absl::StrCat(guest.from, ": ", hello.status().message()));
      continue;
    }
    Arrival arrival = {.hello = *hello,
                       .socket = std::move(guest.socket),
                       .channel = std::make_shared<SealedChannel>(hello->key, /*keeper=*/false),
                       .from = guest.from};
    const Status known = Check(*hello);
    const std::string why = known.ok() ? admit(arrival) : std::string(known.message());
    StatusOr<std::string> answer =
        arrival.channel->out.Seal(absl::StrCat(why.empty() ? std::string(kMeetingWelcome) : why, "\n"));
    if (answer.ok()) send(arrival.socket.get(), answer->data(), answer->size(), MSG_NOSIGNAL);
    if (why.empty() && answer.ok()) {
      on_arrival(std::move(arrival));
    } else {
      on_refused(absl::StrCat(guest.from, ": ", why));
    }
  }
  guests_ = std::move(waiting);
}

}  // namespace millrace::launch
