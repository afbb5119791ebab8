// The loop.
#include "millrace/launch/job_run.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "millrace/base/affinity.h"
#include "millrace/launch/process_tree.h"
#include "millrace/launch/spawn.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kBetweenPings = absl::Seconds(5);
constexpr absl::Duration kBetweenOutputs = absl::Milliseconds(50);

}  // namespace

JobRun::JobRun(const LauncherOptions& options)
    : options_(options),
      began_(Clock::Real()->Now()),
      supervision_(options.job, Clock::Real()),
      output_(STDOUT_FILENO, STDERR_FILENO, options.live),
      hang_(options.hang, began_) {
  const std::vector<int> places = PlaceTasks(options.job).value();
  for (const TaskRecord& record : supervision_.tasks()) {
    const int number = static_cast<int>(tasks_.size());
    LaunchedTask task;
    task.name = record.name.ToString();
    task.prefix = options.colour ? absl::StrFormat("\033[%dm[%s]\033[0m ", TaskColour(number), task.name) : absl::StrFormat("[%s] ", task.name);
    task.host_address = task.claim.host = "localhost";
    task.claim.bound = options.job.bind_workers && GroupOf(options.job, record.name.job).trains();
    if (places[number] >= 0) {
      task.host = options.job.hosts[places[number]].name;
      task.host_address = options.job.hosts[places[number]].Address();
      task.claim.host = task.host;
    } else if (task.claim.bound) {
      task.claim.cores = NeighboursTogether(AllowedCores());  // keepers inherit them
    }
    tasks_.push_back(std::move(task));
  }
}

void JobRun::Perform() {
  std::vector<Action> actions;
  while (OpenKeepers(), !(actions = supervision_.Take()).empty()) {
    for (const Action& action : actions) {
      LaunchedTask* task = action.task >= 0 ? &tasks_[action.task] : nullptr;
      switch (action.kind) {
        case Action::Kind::kStartKeeper: keepers_to_open_.push_back(action.task); break;
        case Action::Kind::kStartProgram: StartProgram(action.task); break;
        case Action::Kind::kSignal:
          if (task->link) task->link->Send(FrameKind::kSignal, EncodeNumbers({action.number}));
          break;
        case Action::Kind::kKill:
          if (task->link) task->link->Send(FrameKind::kKill, "");
          break;
        case Action::Kind::kTell: Say(action.text); break;
        case Action::Kind::kFinish:
          finished_ = true;
          code_ = action.number;
          verdict_ = action.text;
          break;
      }
    }
  }
  TellStates();
}

void JobRun::OnSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    switch (info.ssi_signo) {
      case SIGCHLD: ReapChildren(); break;
      case SIGWINCH: MeasureTerminal(); break;
      case SIGTSTP: Suspend(); break;
      default: supervision_.OnInterrupt(static_cast<int>(info.ssi_signo));
    }
  }
}

void JobRun::Suspend() {
  // The whole job stands still with its launcher, and goes on with it.
  const auto all = [&](int signal) {
    for (LaunchedTask& task : tasks_) {
      if (task.link) task.link->Send(FrameKind::kSignal, EncodeNumbers({signal}));
    }
  };
  all(SIGSTOP);
  output_.EndBlock();  // what the shell writes next stays below it
  output_.Drain(1);
  kill(getpid(), SIGSTOP);
  all(SIGCONT);
  for (size_t i = 0; i < tasks_.size(); ++i) supervision_.OnSuspended(static_cast<int>(i), 0);
  hang_.OnMove(Now(), absl::ZeroDuration());
  MeasureTerminal();
}

void JobRun::ReapChildren() {
  // The keepers' ends are seen where their frames are read; here they are only buried.
  pid_t pid;
  while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) {
    for (LaunchedTask& task : tasks_) {
      if (task.link && task.link->pid() == pid) task.link->OnReaped();
    }
    if (question_ && question_->pid() == pid) question_->OnReaped();
  }
}

absl::Time JobRun::NextTimer() const {
  absl::Time next = std::min(supervision_.next_timer(), next_ping_);
  if (!supervision_.ending()) next = std::min(next, hang_.ask_at());
  if (options_.live) next = std::min(next, next_draw_);
  if (output_.stale()) next = std::min(next, next_output_);
  for (const LaunchedTask& task : tasks_) next = std::min(next, task.keeper_deadline);
  return next;
}

void JobRun::OnTimer() {
  const absl::Time now = Now();
  supervision_.OnTimer();
  if (next_ping_ <= now) {
    next_ping_ = now + kBetweenPings;
    for (LaunchedTask& task : tasks_) {
      if (task.link && !task.host.empty()) task.link->Send(FrameKind::kPing, "");
    }
  }
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].keeper_deadline > now) continue;
    tasks_[i].link->Kill(SIGKILL);
    LoseKeeper(static_cast<int>(i), absl::StrCat("no keeper came up within ", ShortAge(options_.start_timeout)));
  }
  if (!supervision_.ending() && hang_.ask_at() <= now) AskAboutHang();
  if (!supervision_.ending() && hang_.ShouldKill(now)) {
    supervision_.OnHang(absl::StrCat("no step for ", ShortAge(now - hang_.since()), ": ", hang_.cause()));
  }
  Draw(false);
  if (output_.stale() && next_output_ <= now) {
    output_.Present();
    next_output_ = now + kBetweenOutputs;
  }
}

void JobRun::Poll(absl::Time until) {
  // Who is ready is told by its place in the list.
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}, {output_.waiting_fd(), POLLOUT, 0}, {question_ ? question_->fd() : -1, POLLIN, 0}};
  const bool read_tasks = !output_.full() || supervision_.ending();
  for (const LaunchedTask& task : tasks_) {
    fds.push_back({task.link && read_tasks ? task.link->out() : -1, POLLIN, 0});
    fds.push_back({task.link ? task.link->error() : -1, POLLIN, 0});
    fds.push_back({task.link ? task.link->in() : -1, POLLOUT, 0});
  }
  const size_t socket_at = fds.size();
  if (socket_.ok()) {
    for (const int fd : socket_->fds()) fds.push_back({fd, static_cast<short>(fds.size() == socket_at ? POLLIN : POLLOUT), 0});
  }
  const int wait = until == absl::InfiniteFuture() ? -1 : static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(until - Now()) + 1, 0, 600000));
  poll(fds.data(), fds.size(), wait);
  if (fds[1].revents != 0) output_.Write();
  if (fds[2].revents != 0 && question_->Read()) OnHangAnswer();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    LaunchedTask& task = tasks_[i];
    const int number = static_cast<int>(i);
    if (task.link && fds[4 + 3 * i].revents != 0) task.link->ReadError();
    if (task.link && fds[5 + 3 * i].revents != 0) task.link->Flush();
    if (task.link && fds[3 + 3 * i].revents != 0 && !task.link->Read([&](const Frame& frame) { OnFrame(number, frame); })) LoseKeeper(number, task.link->why());
  }
  if (fds[0].revents != 0) OnSignals();
  for (size_t i = socket_at; i < fds.size(); ++i) {
    if (fds[i].revents != 0) {
      socket_->Serve([this] { return Report().ToJson(); });
      break;
    }
  }
}

Status JobRun::OpenLogs() {
  if (options_.log_dir.empty()) return absl::OkStatus();
  MR_RETURN_IF_ERROR(FileSystem::Posix()->MakeDirectories(options_.log_dir));
  for (LaunchedTask& task : tasks_) {
    const std::string name = absl::StrCat(absl::StrReplaceAll(task.name, {{"/", "-"}}), ".log");
    MR_ASSIGN_OR_RETURN(task.log, FileSystem::Posix()->OpenWritable(JoinPath(options_.log_dir, name)));
  }
  return absl::OkStatus();
}

int JobRun::Run() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGWINCH, SIGTSTP}) sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = Fd(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  // A shell that became this process by exec may have left it children; their orphans are none of ours.
  adopts_ = Descendants(getpid()).empty();
  if (adopts_) AdoptOrphans();
  RaiseFileLimit();
  Status ready = options_.job.hosts.empty() ? BindWorkers() : absl::OkStatus();
  if (ready.ok()) ready = WithPrefix("--log_dir: ", OpenLogs());
  if (!ready.ok()) {
    Say(ready.message());
    output_.Drain(1);
    return 2;
  }
  // A job runs without it too.
  socket_ = JobSocket::Open();
  if (!options_.job.hosts.empty()) next_ping_ = Now() + kBetweenPings;
  if (options_.live) MeasureTerminal();
  supervision_.Begin();
  Perform();
  while (!finished_) {
    Poll(NextTimer());
    OnTimer();
    Perform();
  }
  EndKeepers();
  Draw(true);
  output_.EndBlock();
  MergeProfiles();
  if (!verdict_.empty()) {
    Say(verdict_);
  } else if (!options_.quiet) {
    Say(absl::StrCat("the job succeeded in ", ShortAge(Now() - began_)));
  }
  output_.Drain(10);
  return code_;
}

int RunLauncher(const LauncherOptions& options) { return JobRun(options).Run(); }

}  // namespace millrace::launch
