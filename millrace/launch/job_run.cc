#include "millrace/launch/job_run.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_replace.h"
#include "millrace/base/affinity.h"
#include "millrace/launch/process_tree.h"
#include "millrace/launch/requeue.h"
#include "millrace/launch/spawn.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kBetweenPings = absl::Seconds(5);
constexpr absl::Duration kBetweenOutputs = absl::Milliseconds(50);
// How long the end of the job waits for its log files.
constexpr absl::Duration kLogsEnd = absl::Seconds(5);
// The bytes of all tasks' output that the last report has.
constexpr size_t kLastOutput = 4 << 20;
// How long it waits for those who watch the job to read the last report, and for a dashboard to save its page.
constexpr absl::Duration kEndIsRead = absl::Seconds(1), kPageIsSaved = absl::Seconds(5);

}  // namespace

void JobRun::Perform() {
  std::vector<Action> actions;
  while (keepers_.OpenWanted(), !(actions = job_->supervision.Take()).empty()) {
    for (const Action& action : actions) {
      switch (action.kind) {
        case Action::Kind::kStartKeeper:
          keepers_.Want(action.task);
          break;
        case Action::Kind::kStartProgram:
          keepers_.StartProgram(action.task);
          break;
        case Action::Kind::kSignal:
          keepers_.Send(action.task, KeeperFrameKind::kSignal, EncodeNumbers({action.number}));
          break;
        case Action::Kind::kKill:
          keepers_.Send(action.task, KeeperFrameKind::kKill, "");
          break;
        case Action::Kind::kTell:
          job_->Say(action.text);
          break;
        case Action::Kind::kFinish:
          finished_ = true;
          code_ = action.number;
          verdict_ = action.text;
          break;
      }
    }
  }
  display_.TellStates();
}

void JobRun::OnSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    switch (info.ssi_signo) {
      case SIGCHLD:
        ReapChildren();
        break;
      case SIGWINCH:
        display_.MeasureTerminal();
        break;
      case SIGTSTP:
        Suspend();
        break;
      default: {
        const int number = static_cast<int>(info.ssi_signo);
        interrupted_ = true;
        if (number == SIGTERM || number == job_->options.notice_signal) {
          job_->Note("notice", "", absl::StrCat(SignalName(number), " to the launcher"));
          job_->OnNotice(number);
        } else {
          job_->OnInterrupt(number);
        }
      }
    }
  }
}

void JobRun::Suspend() {
  // The whole job is suspended together with its launcher, and continues with it.
  const auto all = [&](int signal) { keepers_.SendToAll(KeeperFrameKind::kSignal, EncodeNumbers({signal})); };
  all(SIGSTOP);
  job_->output.EndBlock();  // so that the shell's output appears below it
  job_->output.Drain(1);
  kill(getpid(), SIGSTOP);
  all(SIGCONT);
  for (size_t i = 0; i < job_->tasks.size(); ++i) job_->supervision.OnSuspended(static_cast<int>(i), 0);
  job_->hang.OnMove(job_->Now(), absl::ZeroDuration());
  display_.MeasureTerminal();
}

void JobRun::ReapChildren() {
  // Only reaps them: the end of a keeper is handled where its frames are read.
  pid_t pid;
  int status = 0;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    for (LaunchedTask& task : job_->tasks) {
      if (task.link && task.link->pid() == pid) task.link->OnReaped();
    }
    inquiry_.OnReaped(pid);
    dashboard_.OnReaped(pid);
    arrivals_.OnReaped(pid, status);
  }
}

absl::Time JobRun::NextTimer() const {
  absl::Time next = std::min({job_->supervision.next_timer(), next_ping_, arrivals_.next_timer()});
  if (!job_->supervision.ending()) next = std::min(next, job_->hang.ask_at());
  if (job_->options.live) next = std::min(next, display_.next_draw());
  if (job_->output.stale()) next = std::min(next, next_output_);
  for (const LaunchedTask& task : job_->tasks) next = std::min(next, task.keeper_deadline);
  return next;
}

void JobRun::OnTimer() {
  const absl::Time now = job_->Now();
  job_->supervision.OnTimer();
  if (next_ping_ <= now) {
    next_ping_ = now + kBetweenPings;
    // mpirun that was killed has told nobody.
    const int parent = job_->options.meeting.has_value() ? job_->options.meeting->parent : 0;
    if (parent != 0 && getppid() != parent && !job_->supervision.ending()) job_->OnInterrupt(SIGHUP);
    for (LaunchedTask& task : job_->tasks) {
      if (task.link && !task.host.empty()) task.link->Send(KeeperFrameKind::kPing, "");
    }
  }
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    if (job_->tasks[i].keeper_deadline > now) continue;
    if (!job_->tasks[i].link) {
      arrivals_.OnMissing();
      continue;
    }
    job_->tasks[i].link->Kill(SIGKILL);
    keepers_.Lose(static_cast<int>(i),
                  absl::StrCat("no keeper came up within ", ShortAge(job_->options.start_timeout)));
  }
  if (!job_->supervision.ending() && job_->hang.ask_at() <= now) inquiry_.Ask();
  if (!job_->supervision.ending() && job_->hang.ShouldKill(now)) {
    job_->supervision.OnHang(
        absl::StrCat("no step for ", ShortAge(now - job_->hang.since()), ": ", job_->hang.cause()));
  }
  display_.Draw(false);
  if (job_->output.stale() && next_output_ <= now) {
    job_->output.Present();
    next_output_ = now + kBetweenOutputs;
  }
}

void JobRun::Poll(absl::Time until) {
  // The code below relies on the order of the descriptors.
  std::vector<pollfd> fds = {
      {signals_.get(), POLLIN, 0},   {job_->output.waiting_fd(), POLLOUT, 0}, {inquiry_.fd(), POLLIN, 0},
      {job_->logs.fd(), POLLOUT, 0}, {job_->logs.failures_fd(), POLLIN, 0},   {dashboard_.fd(), POLLIN, 0}};
  constexpr size_t kTasksAt = 6;
  const bool read_tasks = !job_->output.full() || job_->supervision.ending();
  for (const LaunchedTask& task : job_->tasks) {
    fds.push_back({task.link && read_tasks ? task.link->out() : -1, POLLIN, 0});
    fds.push_back({task.link ? task.link->error() : -1, POLLIN, 0});
    fds.push_back({task.link ? task.link->in() : -1, POLLOUT, 0});
  }
  const size_t socket_at = fds.size();
  if (socket_.ok()) {
    for (const pollfd& ready : socket_->polls()) fds.push_back(ready);
  }
  const size_t arrivals_at = fds.size();
  arrivals_.AddTo(&fds);
  const int wait =
      until == absl::InfiniteFuture()
          ? -1
          : static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(until - job_->Now()) + 1, 0, 600000));
  poll(fds.data(), fds.size(), wait);
  if (fds[1].revents != 0) job_->output.Write();
  if (fds[2].revents != 0) inquiry_.OnReadable();
  if (fds[3].revents != 0) job_->logs.Flush();
  if (fds[4].revents != 0) TellLogFailures();
  if (fds[5].revents != 0) ReadDashboard();
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    LaunchedTask& task = job_->tasks[i];
    const int number = static_cast<int>(i);
    if (task.link && fds[kTasksAt + 1 + 3 * i].revents != 0) task.link->ReadError();
    if (task.link && fds[kTasksAt + 2 + 3 * i].revents != 0) task.link->Flush();
    if (task.link && fds[kTasksAt + 3 * i].revents != 0 &&
        !task.link->Read([&](const KeeperFrame& frame) { keepers_.OnFrame(number, frame); }))
      keepers_.Lose(number, task.link->why());
  }
  if (fds[0].revents != 0) OnSignals();
  for (size_t i = socket_at; i < arrivals_at; ++i) {
    if (fds[i].revents != 0) {
      socket_->Serve([this](const JobRequest& request) { return Answer(request); });
      break;
    }
  }
  const bool arrives = std::any_of(fds.begin() + static_cast<ptrdiff_t>(arrivals_at), fds.end(),
                                   [](const pollfd& p) { return p.revents != 0; });
  if (arrives || arrivals_.next_timer() <= job_->Now()) arrivals_.Serve();
}

std::string JobRun::Answer(const JobRequest& request) const {
  if (request.kind == JobRequest::Kind::kReport) return Report(request.events_after).ToJson();
  for (const LaunchedTask& task : job_->tasks) {
    if (task.name == request.task) return task.tail.Text();
  }
  return "";
}

JobReport JobRun::Report(int64_t events_after) const {
  JobReport report = {.pid = getpid(),
                      .command = job_->options.command,
                      .directory = job_->options.remote.directory,
                      .state = job_->supervision.job_state(),
                      .seconds = absl::ToDoubleSeconds(job_->Now() - job_->began),
                      .cause = job_->supervision.cause(),
                      .hang = job_->hang.cause(),
                      .waits = inquiry_.waits(),
                      .credentials = job_->client,
                      .tasks = {},
                      .events = job_->events.After(events_after)};
  const Training* saver = nullptr;
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    report.tasks.push_back(ReportTask(job_->supervision.tasks()[i], job_->tasks[i].training, job_->tasks[i].host,
                                      job_->tasks[i].address, job_->Now()));
    report.tasks.back().cores = CoreList(job_->tasks[i].cores);
    const Training& training = job_->tasks[i].training;
    if (!training.checkpoint() || (saver != nullptr && saver->checkpoint_at() >= training.checkpoint_at())) continue;
    saver = &training;
    report.checkpoint = {.task = job_->tasks[i].name,
                         .step = *training.checkpoint(),
                         .age_seconds = absl::ToDoubleSeconds(job_->Now() - training.checkpoint_at())};
  }
  if (finished_) {
    report.verdict =
        verdict_.empty() ? absl::StrCat("the job succeeded in ", ShortAge(job_->Now() - job_->began)) : verdict_;
    report.exit_code = code_;
  }
  return report;
}

Status JobRun::OpenLogs() {
  if (job_->options.log_dir.empty()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const LaunchedTask& task : job_->tasks)
    names.push_back(absl::StrCat(absl::StrReplaceAll(task.name, {{"/", "-"}}), ".log"));
  MR_ASSIGN_OR_RETURN(job_->logs, LogFiles::Open(job_->options.log_dir, names));
  return absl::OkStatus();
}

void JobRun::TellLogFailures() {
  job_->logs.ReadFailures([&](int file, int error) {
    job_->Say(absl::StrCat("the log of ", job_->tasks[file].name, " ends here: ", strerror(error)));
  });
}

Status JobRun::MakeAuthority() {
  if (job_->options.insecure) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(job_->authority, net::CertificateAuthority::Make(absl::StrCat("millrace job ", getpid())));
  MR_ASSIGN_OR_RETURN(job_->client, job_->authority->Issue("launcher", {}, net::CertificateRole::kClient));
  return absl::OkStatus();
}

void JobRun::MergeProfiles() {
  if (job_->options.profile_steps.empty()) return;
  const StatusOr<std::string> path = job_->options.merge_profiles(job_->options.profile_dir);
  job_->Say(path.ok() ? absl::StrCat("wrote ", *path, " (open it in chrome://tracing or ui.perfetto.dev)")
                      : absl::StrCat("no timeline in ", job_->options.profile_dir, ": ", path.status().message()));
}

void JobRun::StartDashboard() {
  if (!job_->options.dashboard) return;
  const Status started =
      socket_.ok() ? dashboard_.Start(kThisProgram, job_->options.dashboard_flags) : socket_.status();
  if (!started.ok()) job_->Say(absl::StrCat("no dashboard: ", started.message()));
  keepers_.set_dashboard(dashboard_.pid());
}

void JobRun::ReadDashboard() {
  dashboard_.Read([this](absl::string_view line) { job_->output.Error(absl::StrCat(line, "\n")); });
}

void JobRun::EndWatching() {
  JobReport last = Report(0);
  for (const LaunchedTask& task : job_->tasks)
    last.outputs[task.name] = task.tail.Text(kLastOutput / job_->tasks.size());
  AwaitDashboard();
  if (socket_.ok()) socket_->End(last.ToJson(), kEndIsRead);
  socket_ = Unavailable("the job has ended");
  EndDashboard();
}

void JobRun::AwaitDashboard() {
  // A short job may be over before its dashboard has asked for the end.
  const absl::Time deadline = job_->Now() + kPageIsSaved;
  const auto answer = [this](const JobRequest& request) { return Answer(request); };
  while (dashboard_.pid() != 0 && !dashboard_.has_spoken() && job_->Now() < deadline) {
    std::vector<pollfd> ready = socket_->polls();
    ready.push_back({dashboard_.fd(), POLLIN, 0});
    ready.push_back({signals_.get(), POLLIN, 0});
    poll(ready.data(), ready.size(), 1000);
    socket_->Serve(answer);
    ReadDashboard();
    OnSignals();
  }
  if (socket_.ok()) socket_->Serve(answer);
}

void JobRun::EndDashboard() {
  if (dashboard_.pid() == 0) return;
  // Somebody at a terminal may want to look at the end of the job; a script must go on.
  const bool stays = isatty(STDERR_FILENO) == 1 && isatty(STDIN_FILENO) == 1 && !interrupted_;
  if (stays) job_->Say("the dashboard stays until Ctrl-C");
  job_->output.Drain(1);
  absl::Time deadline = stays ? absl::InfiniteFuture() : job_->Now() + kPageIsSaved;
  if (!stays) dashboard_.Signal(SIGTERM);
  while (dashboard_.pid() != 0 && job_->Now() < deadline) {
    pollfd ready[] = {{signals_.get(), POLLIN, 0}, {dashboard_.fd(), POLLIN, 0}};
    poll(ready, 2, deadline == absl::InfiniteFuture() ? -1 : 100);
    if (ready[1].revents != 0) ReadDashboard();
    interrupted_ = false;
    OnSignals();
    if (!interrupted_) continue;
    dashboard_.Signal(SIGTERM);
    deadline = std::min(deadline, job_->Now() + kPageIsSaved);
  }
  dashboard_.Signal(SIGKILL);
  ReadDashboard();
}

int JobRun::Run() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGWINCH, SIGTSTP, job_->options.notice_signal})
    sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = Fd(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  // If this process was a shell before exec, it may already have children, whose orphans must not be adopted.
  const bool adopts = Descendants(getpid()).empty();
  keepers_.set_adopts(adopts);
  if (adopts) AdoptOrphans();
  RaiseFileLimit();
  Status ready = job_->options.job.hosts.empty() ? keepers_.BindWorkers() : absl::OkStatus();
  if (ready.ok()) ready = WithPrefix("--log_dir: ", OpenLogs());
  if (ready.ok()) ready = WithPrefix("no certificates (--insecure does without): ", MakeAuthority());
  if (ready.ok()) ready = WithPrefix("the tasks cannot meet: ", arrivals_.Open());
  if (!ready.ok()) {
    job_->Say(ready.message());
    job_->output.Drain(1);
    return 2;
  }
  // A failure is not fatal: the job runs without `millrace status`.
  socket_ = JobSocket::Open();
  StartDashboard();
  if (!job_->options.job.hosts.empty() || job_->options.meeting.has_value()) next_ping_ = job_->Now() + kBetweenPings;
  if (job_->options.live) display_.MeasureTerminal();
  job_->supervision.Begin();
  Perform();
  while (!finished_) {
    Poll(NextTimer());
    OnTimer();
    Perform();
  }
  // A scheduler may end this process as soon as another task has ended.
  const bool placed = job_->options.meeting.has_value() && job_->options.meeting->own_task >= 0;
  if (placed) SayVerdict();
  keepers_.End(signals_.get(), code_, [this] { OnSignals(); });
  display_.Draw(true);
  job_->output.EndBlock();
  MergeProfiles();
  if (!job_->logs.Close(kLogsEnd))
    job_->Say(absl::StrCat("--log_dir ", job_->options.log_dir, ": the disk stalls; the logs may be incomplete"));
  TellLogFailures();
  if (!placed) SayVerdict();
  if (job_->options.requeue && job_->supervision.noticed()) {
    const Status asked = Requeue(absl::Seconds(10));
    job_->Say(asked.ok() ? "the scheduler starts the job again (--requeue)"
                         : absl::StrCat("--requeue: ", asked.message()));
  }
  EndWatching();
  job_->output.Drain(10);
  return code_;
}

void JobRun::SayVerdict() {
  if (!verdict_.empty()) {
    job_->Say(verdict_);
  } else if (!job_->options.quiet) {
    job_->Say(absl::StrCat("the job succeeded in ", ShortAge(job_->Now() - job_->began)));
  }
  job_->output.Drain(1);
}

}  // namespace millrace::launch
