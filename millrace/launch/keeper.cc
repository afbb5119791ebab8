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
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/affinity.h"
#include "millrace/base/clock.h"
#include "millrace/base/fd.h"
#include "millrace/base/notice.h"
#include "millrace/launch/core_shares.h"
#include "millrace/launch/credential_folder.h"
#include "millrace/launch/exit_status.h"
#include "millrace/launch/keeper_frame.h"
#include "millrace/launch/keeper_guard.h"
#include "millrace/launch/keeper_rules.h"
#include "millrace/launch/output_echo.h"
#include "millrace/launch/process_tree.h"
#include "millrace/launch/python_site.h"
#include "millrace/launch/spawn.h"
#include "millrace/launch/stream_lines.h"
#include "millrace/launch/task_claim.h"
#include "millrace/net/held_port.h"

namespace millrace::launch {
namespace {

constexpr size_t kKeeperPiece = 32 << 10;
// The limit of output that the launcher has not taken. Beyond it the program blocks, as with a slow terminal.
constexpr size_t kMaxPending = 256 << 10;
constexpr int kProgressFd = 3;
// How long an earlier keeper of the task may take to end what it runs.
constexpr absl::Duration kTakeOver = absl::Seconds(15);
// How long a stdout that nobody reads holds up the end.
constexpr absl::Duration kLastEcho = absl::Seconds(5);

class Keeper : private TaskProcesses {
 public:
  // `folder` is for the program's credentials.
  Keeper(const KeeperOptions& options, const CredentialFolder* folder)
      : options_(options),
        folder_(folder),
        rules_({.silence = options.silence, .grace = options.grace}, Clock::Real(), this,
               [this](KeeperFrameKind kind, absl::string_view body) { Send(kind, body); }) {}
  int Run();

 private:
  // A pipe from the program.
  struct Stream {
    Fd fd;
    KeeperFrameKind kind;
  };

  int64_t Start(const StartFrame& start, NumbersAndText* error) override;
  void SignalProgram(int signal) override { kill(-static_cast<pid_t>(rules_.program()), signal); }
  void RepeatOrder() override { sigqueue(static_cast<pid_t>(rules_.program()), SIGTERM, sigval{}); }
  int SignalAll(int signal) override { return SignalDescendants(signal); }
  bool AnyLeft() override { return !Descendants(getpid()).empty(); }
  // Reads up to a limit, because processes other than the program may keep writing.
  void SendOutput(bool last) override;
  void Release() override;

  void Send(KeeperFrameKind kind, absl::string_view body) {
    if (!rules_.launcher_gone()) AddPending(EncodeKeeperFrame(kind, body));
  }
  void AddPending(absl::string_view bytes);
  void SendPending();
  void ReadLauncher();
  // Acts on the frames that have arrived.
  void TakeFrames(absl::string_view bytes);
  // Returns false if the stream has ended or has no data now.
  bool ReadStream(Stream* stream);
  void OnSignals();
  void Reap();

  const KeeperOptions options_;
  const CredentialFolder* const folder_;
  const pid_t guard_ = getppid();  // when it dies, the keeper gets SIGTERM from it
  Fd signals_;
  std::optional<net::HeldPort> port_;
  KeeperFrameReader reader_{/*greeting=*/false};
  std::string pending_;
  std::vector<Stream> streams_;
  StreamLines progress_{/*limit=*/4096};
  KeeperRules rules_;
  OutputEcho echo_;
};

void Keeper::AddPending(absl::string_view bytes) {
  if (options_.channel == nullptr) {
    absl::StrAppend(&pending_, bytes);
  } else if (StatusOr<std::string> sealed = options_.channel->out.Seal(bytes); sealed.ok()) {
    pending_ += *sealed;
  } else {
    rules_.OnLauncherGone();
  }
}

void Keeper::SendPending() {
  while (!pending_.empty() && !rules_.launcher_gone()) {
    const ssize_t size = write(options_.out, pending_.data(), std::min(pending_.size(), kKeeperPiece));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) return rules_.OnLauncherGone();
    pending_.erase(0, size);
  }
}

void Keeper::ReadLauncher() {
  char bytes[4096];
  const ssize_t size = read(options_.in, bytes, sizeof(bytes));
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size <= 0) return rules_.OnLauncherGone();
  rules_.OnHeard();
  if (options_.channel == nullptr) return TakeFrames({bytes, static_cast<size_t>(size)});
  std::string opened;
  if (!options_.channel->in.Open({bytes, static_cast<size_t>(size)}, &opened).ok()) return rules_.OnLauncherGone();
  TakeFrames(opened);
}

void Keeper::TakeFrames(absl::string_view bytes) {
  reader_.Add(bytes);
  while (!rules_.launcher_gone()) {
    StatusOr<std::optional<KeeperFrame>> frame = reader_.Next();
    if (!frame.ok()) return rules_.OnLauncherGone();
    if (!frame->has_value()) return;
    rules_.OnFrame(**frame);
  }
}

void Keeper::Release() {
  pending_.clear();
  port_.reset();
}

int64_t Keeper::Start(const StartFrame& start, NumbersAndText* error) {
  const auto failed = [error](int number, std::string text) {
    *error = {{number}, std::move(text)};
    return 0;
  };
  port_.reset();
  // The keeper is bound to the same cores as its program.
  if (!start.cores.empty()) {
    if (const Status bound = BindToCores(start.cores); !bound.ok()) return failed(EINVAL, std::string(bound.message()));
  }
  if (start.credentials.has_value()) {
    if (const Status written = folder_->Write(*start.credentials); !written.ok())
      return failed(EACCES, absl::StrCat("its certificate cannot be written: ", written.message()));
  }
  StatusOr<Pipe> out = Pipe::Make(), err = Pipe::Make(), progress = Pipe::Make();
  if (!out.ok() || !err.ok() || !progress.ok()) return failed(EMFILE, "no pipe");
  SpawnOptions options = {.arguments = start.arguments,
                          .environment = start.environment,
                          .descriptors = {-1, out->write.get(), err->write.get(), progress->write.get()},
                          .parent_death_signal = SIGKILL};
  options.environment.push_back(absl::StrCat("MILLRACE_PROGRESS_FD=", kProgressFd));
  options.environment.push_back(absl::StrCat(kKeeperVariable, "=", getpid()));
  options.environment.push_back(
      absl::StrCat(kTlsFolderVariable, "=", start.credentials.has_value() ? folder_->path() : ""));
  if (const Status added = AddPythonSite(&options.environment); !added.ok())
    return failed(ENOENT, std::string(added.message()));
  SpawnError why;
  const pid_t pid = Spawn(options, &why);
  if (pid <= 0) return failed(why.number, why.text);
  echo_.set_ended(false);
  streams_.clear();
  streams_.push_back({std::move(out->read), KeeperFrameKind::kStdout});
  streams_.push_back({std::move(err->read), KeeperFrameKind::kStderr});
  streams_.push_back({std::move(progress->read), KeeperFrameKind::kProgress});
  for (const Stream& stream : streams_) SetNonBlocking(stream.fd.get());
  return pid;
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
    progress_.Add(read, [this](absl::string_view line) { rules_.OnProgress(line); });
  } else {
    if (options_.echo) echo_.Add(stream->kind == KeeperFrameKind::kStderr, read);
    Send(stream->kind, read);
  }
  return true;
}

void Keeper::SendOutput(bool last) {
  const size_t most = pending_.size() + 2 * kMaxPending;
  for (Stream& stream : streams_) {
    while (stream.fd.ok() && pending_.size() < most && ReadStream(&stream)) {
    }
  }
  if (!last) return;
  echo_.set_ended(true);
  progress_.Flush([this](absl::string_view line) { Send(KeeperFrameKind::kProgress, line); });
  streams_.clear();
}

void Keeper::OnSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      Reap();
    } else if (info.ssi_signo == SIGTERM && (info.ssi_code == SI_QUEUE || static_cast<pid_t>(info.ssi_pid) != guard_)) {
      rules_.OnNotice(SIGTERM, /*passed_on=*/info.ssi_code == SI_QUEUE);
    } else if (options_.channel != nullptr && !rules_.launcher_gone()) {
      // A scheduler sends it to every task; the launcher ends them together.
      Send(KeeperFrameKind::kInterrupted, EncodeNumbers({info.ssi_signo}));
    } else {
      rules_.OnLauncherGone();
    }
  }
}

void Keeper::Reap() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid <= 0) break;
    if (pid != rules_.program()) continue;
    if (WIFSTOPPED(status)) {
      rules_.OnSuspended(WSTOPSIG(status));
    } else if (WIFCONTINUED(status)) {
      rules_.OnSuspended(0);
    } else {
      rules_.OnExited(ExitStatus::OfWait(status));
    }
  }
  rules_.LookWhetherGone();
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
  TaskClaim claim = TaskClaim::Take(options_.claim, kTakeOver);
  rules_.OnHeard();
  AddPending(kGreeting);
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
  TakeFrames(options_.received);
  while (!rules_.over()) {
    const bool gone = rules_.launcher_gone();
    std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0},
                               {gone ? -1 : options_.in, POLLIN, 0},
                               {gone || pending_.empty() ? -1 : options_.out, POLLOUT, 0},
                               {gone ? -1 : claim.fd(), POLLIN, 0},
                               {echo_.waiting_fd(/*error=*/false), POLLOUT, 0},
                               {echo_.waiting_fd(/*error=*/true), POLLOUT, 0}};
    constexpr size_t kStreamsAt = 6;
    const bool takes = pending_.size() < kMaxPending && echo_.size() < kMaxPending;
    for (const Stream& stream : streams_) fds.push_back({takes ? stream.fd.get() : -1, POLLIN, 0});
    const absl::Duration left = rules_.next_timer() - Clock::Real()->Now();
    const int wait = left == absl::InfiniteDuration()
                         ? -1
                         : static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 0, 60000));
    poll(fds.data(), fds.size(), wait);
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (fds[kStreamsAt + i].revents != 0 && streams_[i].fd.ok()) ReadStream(&streams_[i]);
    }
    for (const bool error : {false, true}) {
      if (fds[error ? 5 : 4].revents != 0) echo_.Write(error);
    }
    if (fds[0].revents != 0) OnSignals();
    if (fds[1].revents != 0 && !rules_.launcher_gone()) ReadLauncher();
    // The launcher has another keeper now.
    if (fds[3].revents != 0 && claim.IsAsked()) rules_.OnLauncherGone();
    rules_.OnTimer();
    SendPending();
  }
  echo_.Drain(kLastEcho);
  if (options_.channel == nullptr) return 0;
  if (!rules_.finish().has_value()) fprintf(stderr, "millrace: the task that supervises the job (rank 0) is gone\n");
  return rules_.finish().value_or(1);
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
