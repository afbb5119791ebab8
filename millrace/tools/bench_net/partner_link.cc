#include "millrace/tools/bench_net/partner_link.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/launch/spawn.h"
#include "millrace/net/address.h"
#include "millrace/tools/bench_net/partner.h"

namespace millrace::bench_net {
namespace {

struct SocketPair {
  Fd mine, theirs;
};

StatusOr<SocketPair> MakeSocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return ResourceExhausted("cannot create a Unix socket: ", strerror(errno));
  return SocketPair{Fd(fds[0]), Fd(fds[1])};
}

}  // namespace

StatusOr<std::unique_ptr<PartnerLink>> PartnerLink::Start() {
  std::unique_ptr<PartnerLink> link(new PartnerLink);
  MR_ASSIGN_OR_RETURN(SocketPair control, MakeSocketPair());
  MR_ASSIGN_OR_RETURN(SocketPair data, MakeSocketPair());
  link->shared_file_ = Fd(memfd_create("millrace-bench-net", MFD_CLOEXEC));
  if (!link->shared_file_.ok()) return ResourceExhausted("cannot create shared memory: ", strerror(errno));
  launch::SpawnError error;
  static_assert(kControlFd == 0 && kDataFd == 3 && kSharedFd == 4);
  link->child_ = launch::Spawn(
      {.arguments = {"millrace", "bench-net-partner"},
       .path = "/proc/self/exe",
       .descriptors = {control.theirs.get(), -1, STDERR_FILENO, data.theirs.get(), link->shared_file_.get()},
       .parent_death_signal = SIGKILL},
      &error);
  if (link->child_ < 0) return Unavailable("cannot start the partner process: ", error.text);
  // Closed here so that the end of the partner is noticed.
  control.theirs.Reset();
  data.theirs.Reset();
  link->control_ = Connection(std::move(control.mine));
  link->data_ = Connection(std::move(data.mine));
  MR_RETURN_IF_ERROR(link->Greet());
  return link;
}

StatusOr<std::unique_ptr<PartnerLink>> PartnerLink::Connect(const std::string& address) {
  std::unique_ptr<PartnerLink> link(new PartnerLink);
  MR_ASSIGN_OR_RETURN(const net::HostPort where, net::ParseHostPort(address));
  link->host_ = where.host;
  StatusOr<Connection> control = ConnectTcp(where.host, where.port);
  if (!control.ok())
    return WithSuffix(control.status(),
                      absl::StrCat("; start `millrace bench-net --listen ", address, "` there first"));
  link->control_ = *std::move(control);
  if (const Status status = link->Greet(); !status.ok()) {
    return WithSuffix(
        status,
        absl::StrCat(" (at ", address, "); is that `millrace bench-net --listen`, and not busy with another peer?"));
  }
  return link;
}

PartnerLink::~PartnerLink() {
  control_ = Connection();
  data_ = Connection();
  // SIGKILL, because the partner has nothing to save and a stopped one would not notice that its connections have
  // ended.
  if (child_ > 0) kill(child_, SIGKILL);
  while (child_ > 0 && waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status PartnerLink::Greet() {
  MR_ASSIGN_OR_RETURN(const std::string answer, Ask(kHello));
  const std::vector<std::string> words = absl::StrSplit(answer, absl::MaxSplits(' ', 2));
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &cores_) || !absl::SimpleAtoi(words[1], &max_size_)) {
    return InvalidArgument("the other side does not speak the bench-net protocol");
  }
  name_ = words[2];
  return absl::OkStatus();
}

StatusOr<std::string> PartnerLink::Ask(absl::string_view line) {
  MR_RETURN_IF_ERROR(control_.SendLine(line));
  return ReadAnswer();
}

StatusOr<std::string> PartnerLink::ReadAnswer() {
  MR_ASSIGN_OR_RETURN(const std::string line, control_.ReadLine());
  absl::string_view answer = line;
  if (absl::ConsumePrefix(&answer, "ok ")) return std::string(answer);
  if (absl::ConsumePrefix(&answer, "error ")) return FailedPrecondition(answer);
  return InvalidArgument("the other side does not speak the bench-net protocol");
}

Status PartnerLink::MakeMemory(size_t size) {
  MR_ASSIGN_OR_RETURN(here_, TouchedMemory::Private(size));
  if (shared_file_.ok() && ftruncate(shared_file_.get(), static_cast<off_t>(size)) != 0)
    return ResourceExhausted("cannot resize shared memory: ", strerror(errno));
  MR_ASSIGN_OR_RETURN(const std::string answer, Ask(absl::StrCat("memory ", size)));
  const std::vector<std::string> words = absl::StrSplit(answer, ' ');
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &remote_pid_) || !absl::SimpleAtoi(words[1], &remote_address_)) {
    return InvalidArgument("the other side does not speak the bench-net protocol");
  }
  if (shared_file_.ok()) {
    MR_ASSIGN_OR_RETURN(shared_, TouchedMemory::Shared(shared_file_.get(), size));
  }
  return absl::OkStatus();
}

Status PartnerLink::Fetch(size_t size) {
  const uint64_t question = size;
  MR_RETURN_IF_ERROR(data_.Send(&question, sizeof(question)));
  return data_.Receive(here_.data(), size);
}

Status PartnerLink::AskReady() {
  const uint64_t question = kReady;
  char ready;
  MR_RETURN_IF_ERROR(data_.Send(&question, sizeof(question)));
  return data_.Receive(&ready, 1);
}

Status PartnerLink::ReadProcess(size_t size) {
  for (size_t done = 0; done < size;) {
    iovec to = {.iov_base = here_.data() + done, .iov_len = size - done};
    iovec from = {.iov_base = reinterpret_cast<void*>(remote_address_ + done), .iov_len = size - done};
    const ssize_t got = process_vm_readv(remote_pid_, &to, 1, &from, 1, 0);
    if (got <= 0) return Unavailable("not permitted here (", got < 0 ? strerror(errno) : "no data", ")");
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

Status PartnerLink::UseTcp() {
  MR_ASSIGN_OR_RETURN(const std::string answer, Ask("tcp"));
  int port;
  if (!absl::SimpleAtoi(answer, &port)) return InvalidArgument("expected a port, got '", answer, "'");
  MR_ASSIGN_OR_RETURN(data_, ConnectTcp(host_, port));
  return ReadAnswer().status();
}

StatusOr<int> PartnerLink::OpenTransport(const std::string& kind) {
  MR_ASSIGN_OR_RETURN(const std::string answer, Ask(absl::StrCat("transport ", kind)));
  int port;
  if (!absl::SimpleAtoi(answer, &port)) return InvalidArgument("expected a port, got '", answer, "'");
  return port;
}

}  // namespace millrace::bench_net
