#include "millrace/launch/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/affinity.h"
#include "millrace/base/clock.h"
#include "millrace/base/fd.h"
#include "millrace/launch/core_shares.h"
#include "millrace/launch/credential_folder.h"
#include "millrace/launch/exit_status.h"
#include "millrace/launch/keeper_frame.h"
#include "millrace/launch/keeper_guard.h"
#include "millrace/launch/process_tree.h"
#include "millrace/launch/spawn.h"
#include "millrace/launch/stream_lines.h"
#include "millrace/net/held_port.h"

namespace millrace::launch {
namespace {

constexpr size_t kKeeperPiece = 32 << 10;
// The limit of output that the launcher has not taken. Beyond it the program blocks, as with a slow terminal.
constexpr size_t kMaxPending = 256 << 10;
constexpr int kProgressFd = 3;
constexpr absl::Duration kBetweenKills = absl::Milliseconds(20);
constexpr absl::Duration kGiveUp = absl::Seconds(10);

class Keeper {
 public:
  // `folder` is for the program's credentials.
  Keeper(const KeeperOptions& options, const CredentialFolder* folder) : options_(options), folder_(folder) {}
  int Run();

 private:
  // A pipe from the program.
  struct Stream {
    Fd fd;
    KeeperFrameKind kind;
  };
  enum class Ending { kNo, kAsked, kKilling };

  absl::Time Now() const { return Clock::Real()->Now(); }
  void Send(KeeperFrameKind kind, absl::string_view body) {
    if (!launcher_gone_) pending_ += EncodeKeeperFrame(kind, body);
  }
  void SendPending();
  void ReadLauncher();
  void Obey(const KeeperFrame& frame);
  void Start(const StartFrame& start);
  // Returns false if the stream has ended or has no data now.
  bool ReadStream(Stream* stream);
  // Reads the available data, up to a limit, because processes other than the program may keep writing.
  void DrainStreams();
  void OnSignals();
  void Reap();
  void LauncherGone();
  // Ends all descendants: with SIGTERM first, then SIGKILL, or with SIGKILL immediately if `now`.
  void EndTree(bool now);
  void OnTimer();
  void LookWhetherGone();
  absl::Time NextTimer() const;

  const KeeperOptions options_;
  const CredentialFolder* const folder_;
  Fd signals_;
  std::optional<net::HeldPort> port_;
  KeeperFrameReader reader_{/*greeting=*/false};
  std::string pending_;
  absl::Time heard_;
  bool launcher_gone_ = false;
  bool paused_ = false;

  pid_t program_ = 0;     // not yet reaped
  bool running_ = false;  // from its start until no descendant is left
  std::vector<Stream> streams_;
  StreamLines progress_{/*limit=*/4096};
  Ending ending_ = Ending::kNo;
  absl::Time end_at_ = absl::InfiniteFuture();  // when to kill next
  absl::Time give_up_at_ = absl::InfiniteFuture();
};

void Keeper::SendPending() {
  while (!pending_.empty() && !launcher_gone_) {
    const ssize_t size = write(options_.out, pending_.data(), std::min(pending_.size(), kKeeperPiece));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) return LauncherGone();
    pending_.erase(0, size);
  }
}

void Keeper::ReadLauncher() {
  char bytes[4096];
  const ssize_t size = read(options_.in, bytes, sizeof(bytes));
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size <= 0) return LauncherGone();
  heard_ = Now();
  paused_ = false;
  reader_.Add({bytes, static_cast<size_t>(size)});
  while (!launcher_gone_) {
    StatusOr<std::optional<KeeperFrame>> frame = reader_.Next();
    if (!frame.ok()) return LauncherGone();
    if (!frame->has_value()) return;
    Obey(**frame);
  }
}

void Keeper::Obey(const KeeperFrame& frame) {
  switch (frame.kind) {
    case KeeperFrameKind::kStart: {
      const StatusOr<StartFrame> start = StartFrame::Decode(frame.body);
      if (!start.ok() || running_) return LauncherGone();
      return Start(*start);
    }
    case KeeperFrameKind::kSignal: {
      const StatusOr<NumbersAndText> number = DecodeNumbers(frame.body, 1);
      if (!number.ok() || number->numbers[0] < 1 || number->numbers[0] >= NSIG) return LauncherGone();
      // Not yet reaped, so the process group still belongs to the program.
      if (program_ == 0) return;
      kill(-program_, static_cast<int>(number->numbers[0]));
      // A suspended process would not react to the signal.
      if (number->numbers[0] != SIGSTOP) kill(-program_, SIGCONT);
      // A launcher that suspends the job suspends itself next, so its silence is expected.
      paused_ = number->numbers[0] == SIGSTOP;
      return;
    }
    case KeeperFrameKind::kKill:
      if (running_) EndTree(/*now=*/true);
      return;
    default:
      return;  // kPing
  }
}

void Keeper::Start(const StartFrame& start) {
  port_.reset();
  // The keeper is bound to the same cores as its program.
  if (!start.cores.empty()) {
    if (const Status bound = BindToCores(start.cores); !bound.ok())
      return Send(KeeperFrameKind::kNotStarted, EncodeNumbers({EINVAL}, bound.message()));
  }
  if (start.credentials.has_value()) {
    if (const Status written = folder_->Write(*start.credentials); !written.ok())
      return Send(KeeperFrameKind::kNotStarted,
                  EncodeNumbers({EACCES}, absl::StrCat("its certificate cannot be written: ", written.message())));
  }
  StatusOr<Pipe> out = Pipe::Make(), error = Pipe::Make(), progress = Pipe::Make();
  SpawnError why = {EMFILE, "no pipe"};
  if (out.ok() && error.ok() && progress.ok()) {
    SpawnOptions options = {.arguments = start.arguments,
                            .environment = start.environment,
                            .descriptors = {-1, out->write.get(), error->write.get(), progress->write.get()},
                            .parent_death_signal = SIGKILL};
    options.environment.push_back(absl::StrCat("MILLRACE_PROGRESS_FD=", kProgressFd));
    options.environment.push_back(
        absl::StrCat(kTlsFolderVariable, "=", start.credentials.has_value() ? folder_->path() : ""));
    const pid_t pid = Spawn(options, &why);
    if (pid > 0) {
      program_ = pid;
      running_ = true;
      ending_ = Ending::kNo;
      end_at_ = give_up_at_ = absl::InfiniteFuture();
      streams_.clear();
      streams_.push_back({std::move(out->read), KeeperFrameKind::kStdout});
      streams_.push_back({std::move(error->read), KeeperFrameKind::kStderr});
      streams_.push_back({std::move(progress->read), KeeperFrameKind::kProgress});
      for (const Stream& stream : streams_) SetNonBlocking(stream.fd.get());
      return Send(KeeperFrameKind::kStarted, EncodeNumbers({pid}));
    }
  }
  Send(KeeperFrameKind::kNotStarted, EncodeNumbers({why.number}, why.text));
}

bool Keeper::ReadStream(Stream* stream) {
  char bytes[kKeeperPiece];
  const ssize_t size = read(stream->fd.get(), bytes, sizeof(bytes));
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  if (size <= 0) {
    stream->fd.Reset();
    return false;
  }
  const absl::string_view read(bytes, size);
  if (stream->kind == KeeperFrameKind::kProgress) {
    progress_.Add(read, [this](absl::string_view line) { Send(KeeperFrameKind::kProgress, line); });
  } else {
    Send(stream->kind, read);
  }
  return true;
}

void Keeper::DrainStreams() {
  const size_t most = pending_.size() + 2 * kMaxPending;
  for (Stream& stream : streams_) {
    while (stream.fd.ok() && pending_.size() < most && ReadStream(&stream)) {
    }
  }
}

void Keeper::OnSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      Reap();
    } else {
      LauncherGone();
    }
  }
}

void Keeper::Reap() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid <= 0) break;
    if (pid != program_) continue;
    if (WIFSTOPPED(status)) {
      Send(KeeperFrameKind::kSuspended, EncodeNumbers({WSTOPSIG(status)}));
    } else if (WIFCONTINUED(status)) {
      Send(KeeperFrameKind::kSuspended, EncodeNumbers({0}));
    } else {
      program_ = 0;
      // Sends the program's output before its exit status, so that the launcher knows its last words.
      DrainStreams();
      const ExitStatus exit = ExitStatus::OfWait(status);
      Send(KeeperFrameKind::kExited, EncodeNumbers({exit.code, exit.signal}));
      if (ending_ == Ending::kNo) EndTree(/*now=*/false);
    }
  }
  LookWhetherGone();
}

void Keeper::LauncherGone() {
  if (launcher_gone_) return;
  launcher_gone_ = true;
  pending_.clear();
  port_.reset();
  if (running_) EndTree(/*now=*/false);
}

void Keeper::EndTree(bool now) {
  if (now || ending_ == Ending::kKilling) {
    ending_ = Ending::kKilling;
    if (give_up_at_ == absl::InfiniteFuture()) give_up_at_ = Now() + kGiveUp;
    SignalDescendants(SIGKILL);
    end_at_ = Now() + kBetweenKills;
    return;
  }
  if (ending_ == Ending::kAsked) return;
  ending_ = Ending::kAsked;
  if (SignalDescendants(SIGTERM) > 0) SignalDescendants(SIGCONT);
  end_at_ = Now() + options_.grace;
}

void Keeper::LookWhetherGone() {
  if (!running_ || program_ != 0 || ending_ == Ending::kNo) return;
  if (Now() < give_up_at_ && !Descendants(getpid()).empty()) {
    // SIGCHLD reports the end of adopted children; the processes below them are polled.
    return;
  }
  DrainStreams();
  progress_.Flush([this](absl::string_view line) { Send(KeeperFrameKind::kProgress, line); });
  streams_.clear();
  running_ = false;
  end_at_ = give_up_at_ = absl::InfiniteFuture();
  Send(KeeperFrameKind::kGone, "");
}

void Keeper::OnTimer() {
  const absl::Time now = Now();
  if (!paused_ && now - heard_ >= options_.silence) LauncherGone();
  if (running_ && end_at_ <= now) EndTree(/*now=*/true);
  if (running_) LookWhetherGone();
}

absl::Time Keeper::NextTimer() const {
  absl::Time next = std::min(end_at_, give_up_at_);
  if (options_.silence != absl::InfiniteDuration() && !launcher_gone_ && !paused_)
    next = std::min(next, heard_ + options_.silence);
  return next;
}

int Keeper::Run() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  for (const int number : {SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  signals_ = Fd(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  SetNonBlocking(options_.out);
  SetNonBlocking(options_.in);
  heard_ = Now();
  pending_ = std::string(kGreeting);
  StatusOr<net::HeldPort> port = net::HeldPort::Take();
  if (!port.ok()) {
    Send(KeeperFrameKind::kNotStarted, EncodeNumbers({EADDRINUSE}, port.status().message()));
    SendPending();
    return 1;
  }
  port_ = *std::move(port);
  HelloFrame hello{.pid = getpid(), .port = port_->port(), .machine = ThisMachine()};
  hello.cores = NeighboursTogether(AllowedCores());
  hello.credential_folder = folder_->path();
  Send(KeeperFrameKind::kHello, hello.Encode());
  while (!launcher_gone_ || running_) {
    std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0},
                               {launcher_gone_ ? -1 : options_.in, POLLIN, 0},
                               {launcher_gone_ || pending_.empty() ? -1 : options_.out, POLLOUT, 0}};
    for (const Stream& stream : streams_)
      fds.push_back({pending_.size() < kMaxPending ? stream.fd.get() : -1, POLLIN, 0});
    const absl::Time next = NextTimer();
    const int wait = next == absl::InfiniteFuture()
                         ? -1
                         : static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(next - Now()) + 1, 0, 60000));
    poll(fds.data(), fds.size(), wait);
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (fds[3 + i].revents != 0 && streams_[i].fd.ok()) ReadStream(&streams_[i]);
    }
    if (fds[0].revents != 0) OnSignals();
    if (fds[1].revents != 0 && !launcher_gone_) ReadLauncher();
    OnTimer();
    SendPending();
  }
  return 0;
}

}  // namespace

int RunKeeper(const KeeperOptions& options) {
  prctl(PR_SET_NAME, "millrace-keeper");
  setsid();
  const CredentialFolder folder;
  SplitOffGuard([&folder] { folder.Remove(); });
  AdoptOrphans();
  const int code = Keeper(options, &folder).Run();
  KillAllBelow();
  folder.Remove();
  return code;
}

}  // namespace millrace::launch
