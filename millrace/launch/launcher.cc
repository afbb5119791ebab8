#include "millrace/launch/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/launch/hang_question.h"
#include "millrace/launch/job_report.h"
#include "millrace/launch/job_socket.h"
#include "millrace/launch/launched_task.h"
#include "millrace/launch/process_tree.h"
#include "millrace/launch/supervision.h"
#include "millrace/launch/task_place.h"
#include "millrace/launch/terminal_output.h"
#include "millrace/launch/training_text.h"
#include "millrace/train/timeline.h"

namespace millrace::launch {
namespace {

constexpr char kThisProgram[] = "/proc/self/exe";
constexpr absl::Duration kBetweenPings = absl::Seconds(5);
constexpr absl::Duration kBetweenDraws = absl::Milliseconds(250);
constexpr absl::Duration kBetweenOutputs = absl::Milliseconds(50);
constexpr absl::Duration kKeepersEnd = absl::Seconds(10);
// Connections that are being made at once: ssh servers refuse when there are too many.
constexpr int kMaxConnecting = 8;

class Launcher {
 public:
  explicit Launcher(const LauncherOptions& options);
  int Run();

 private:
  absl::Time Now() const { return Clock::Real()->Now(); }
  void Say(absl::string_view line) { output_.Error(absl::StrCat("millrace: ", line, "\n")); }

  // Supervision's wishes, and what they lead to.
  void Perform();
  void OpenKeepers();
  void StartProgram(int task);
  void OnFrame(int task, const Frame& frame);
  void OnOutput(int task, bool error, absl::string_view bytes);
  void OnLine(int task, bool error, absl::string_view line);
  void OnProgress(int task, const Progress& progress, bool told);
  void LoseKeeper(int task, std::string why);
  void TellStates();

  void OnSignals();
  void Suspend();
  void ReapChildren();
  void KillStrays();

  void AskAboutHang();
  void OnHangAnswer();
  void Draw(bool now);
  void MeasureTerminal();
  JobReport Report() const;

  void Poll(absl::Time until);
  absl::Time NextTimer() const;
  void OnTimer();
  void EndKeepers();
  void MergeProfiles();

  const LauncherOptions& options_;
  const absl::Time began_;
  Supervision supervision_;
  std::vector<LaunchedTask> tasks_;
  TerminalOutput output_;
  HangWatch hang_;
  std::optional<HangQuestion> question_;
  HangAnswer hang_answer_;
  StatusOr<JobSocket> socket_ = Unavailable("not opened");
  Fd signals_;
  bool adopts_ = false;  // orphans below it are its own
  std::vector<int> keepers_to_open_;
  ClusterAddresses cluster_;
  int rows_ = 24, columns_ = 80;
  absl::Time next_ping_ = absl::InfiniteFuture(), next_draw_ = absl::InfiniteFuture(), next_output_ = absl::InfinitePast();
  bool finished_ = false;
  int code_ = 1;
  std::string verdict_;
};

Launcher::Launcher(const LauncherOptions& options)
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
    if (places[number] >= 0) task.host = options.job.hosts[places[number]].name;
    tasks_.push_back(std::move(task));
  }
}

void Launcher::Perform() {
  std::vector<Action> actions;
  while (!(actions = supervision_.Take()).empty()) {
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
    OpenKeepers();
  }
  TellStates();
}

void Launcher::OpenKeepers() {
  const auto connects = [](const LaunchedTask& t) { return !t.host.empty() && t.keeper_deadline != absl::InfiniteFuture(); };
  const auto connecting = std::count_if(tasks_.begin(), tasks_.end(), connects);
  int64_t room = kMaxConnecting - connecting;
  std::vector<int> later;
  for (const int number : std::exchange(keepers_to_open_, {})) {
    LaunchedTask& task = tasks_[number];
    if (supervision_.ending()) continue;
    if (!task.host.empty() && room-- <= 0) {
      later.push_back(number);
      continue;
    }
    StatusOr<KeeperLink> link = KeeperLink::Open(kThisProgram, task.host, options_.remote);
    if (!link.ok()) {
      supervision_.OnKeeperLost(number, link.status().message());
      continue;
    }
    task.link = *std::move(link);
    task.keeper_deadline = Now() + options_.start_timeout;
  }
  keepers_to_open_ = std::move(later);
}

void Launcher::StartProgram(int number) {
  LaunchedTask& task = tasks_[number];
  const TaskName& name = supervision_.tasks()[number].name;
  if (cluster_.empty()) {
    for (size_t i = 0; i < tasks_.size(); ++i) cluster_[supervision_.tasks()[i].name.job].push_back(tasks_[i].address);
  }
  const auto group = std::find_if(options_.job.groups.begin(), options_.job.groups.end(), [&](const TaskGroup& g) { return g.name == name.job; });
  StartFrame start;
  start.arguments = FillIn(group->program.empty() ? options_.job.program : group->program, cluster_, name);
  if (options_.host_flags && group->program.empty()) {
    for (std::string& flag : HostFlags(cluster_, name)) start.arguments.push_back(std::move(flag));
  }
  start.environment = options_.environment;
  start.environment.push_back(absl::StrCat("TF_CONFIG=", TfConfig(cluster_, name)));
  start.environment.push_back(absl::StrCat("MILLRACE_TASK=", task.name));
  start.environment.push_back(absl::StrCat("MILLRACE_JOB=", getpid()));
  if (getenv("PYTHONUNBUFFERED") == nullptr) start.environment.push_back("PYTHONUNBUFFERED=1");
  if (!options_.profile_steps.empty()) {
    start.environment.push_back(absl::StrCat(kProfileStepsVariable, "=", options_.profile_steps));
    start.environment.push_back(absl::StrCat(kProfileDirVariable, "=", options_.profile_dir));
  }
  task.last_error.clear();
  task.training.Restart();
  const std::string body = start.Encode();
  if (body.size() > kMaxFrameBody) return supervision_.OnNotStarted(number, "its arguments and environment are too long", 126);
  task.link->Send(FrameKind::kStart, body);
}

void Launcher::OnFrame(int number, const Frame& frame) {
  LaunchedTask& task = tasks_[number];
  const auto numbers = [&](int count) { return DecodeNumbers(frame.body, count).value_or(NumbersAndText{std::vector<int64_t>(count, 0), ""}); };
  switch (frame.kind) {
    case FrameKind::kHello: {
      const StatusOr<HelloFrame> hello = HelloFrame::Decode(frame.body);
      if (!hello.ok()) return;
      task.keeper_deadline = absl::InfiniteFuture();
      // After a loss the task keeps its place.
      if (task.address.empty()) {
        std::string host = "localhost";
        for (const Host& candidate : options_.job.hosts) {
          if (candidate.name == task.host) host = candidate.Address();
        }
        task.address = absl::StrCat(host, ":", hello->port);
      }
      supervision_.OnKeeperReady(number);
      return;
    }
    case FrameKind::kStarted:
      supervision_.OnStarted(number, numbers(1).numbers[0]);
      TellStates();  // it may have ended in the same breath
      return hang_.OnMove(Now(), absl::ZeroDuration());
    case FrameKind::kNotStarted: {
      const NumbersAndText why = numbers(1);
      return supervision_.OnNotStarted(number, why.text, why.numbers[0] == ENOENT ? 127 : 126);
    }
    case FrameKind::kStdout: return OnOutput(number, false, frame.body);
    case FrameKind::kStderr: return OnOutput(number, true, frame.body);
    case FrameKind::kProgress:
      if (const StatusOr<Progress> progress = ParseProgress(frame.body); progress.ok()) OnProgress(number, *progress, /*told=*/true);
      return;
    case FrameKind::kExited: {
      const NumbersAndText exit = numbers(2);
      OnOutput(number, true, "");
      for (const bool error : {false, true}) {
        (error ? task.error : task.out).Flush([&](absl::string_view line) { OnLine(number, error, line); });
      }
      hang_.OnMove(Now(), absl::ZeroDuration());
      return supervision_.OnExited(number, {.code = static_cast<int>(exit.numbers[0]), .signal = static_cast<int>(exit.numbers[1])}, task.last_error);
    }
    case FrameKind::kSuspended: return supervision_.OnSuspended(number, static_cast<int>(numbers(1).numbers[0]));
    case FrameKind::kGone:
      for (const bool error : {false, true}) {
        (error ? task.error : task.out).Flush([&](absl::string_view line) { OnLine(number, error, line); });
      }
      return supervision_.OnGone(number);
    default: return;
  }
}

void Launcher::OnOutput(int number, bool error, absl::string_view bytes) {
  LaunchedTask& task = tasks_[number];
  if (task.log != nullptr && !bytes.empty()) {
    if (Status written = task.log->Append(bytes); !written.ok()) {
      Say(absl::StrCat("the log of ", task.name, " ends here: ", written.message()));
      task.log = nullptr;
    } else {
      task.log->Flush().IgnoreError();
    }
  }
  (error ? task.error : task.out).Add(bytes, [&](absl::string_view line) { OnLine(number, error, line); });
}

void Launcher::OnLine(int number, bool error, absl::string_view line) {
  LaunchedTask& task = tasks_[number];
  if (error && !absl::StripAsciiWhitespace(line).empty()) task.last_error = ForTerminal(absl::StripAsciiWhitespace(line));
  if (const Progress progress = ReadTrainingText(line); progress.step || progress.loss) OnProgress(number, progress, /*told=*/false);
  const std::string text = options_.live ? absl::StrCat(task.prefix, ForTerminal(line), "\n") : absl::StrCat(task.prefix, line, "\n");
  if (error) {
    output_.Error(text);
  } else {
    output_.Out(text);
  }
}

void Launcher::OnProgress(int number, const Progress& progress, bool told) {
  Training& training = tasks_[number].training;
  const absl::Time before = training.last_step();
  training.Add(progress, told, Now());
  if (training.step()) supervision_.OnStep(number, *training.step());
  if (training.last_step() != before) {
    hang_.OnMove(Now(), training.longest_step());
    hang_answer_ = {};
  }
}

void Launcher::LoseKeeper(int number, std::string why) {
  LaunchedTask& task = tasks_[number];
  task.link.reset();
  task.keeper_deadline = absl::InfiniteFuture();
  if (adopts_) KillStrays();
  if (!task.host.empty()) why = why.empty() ? absl::StrCat("the connection to ", task.host, " ended") : absl::StrCat(task.host, ": ", why);
  if (why.empty()) why = "its keeper was killed";
  supervision_.OnKeeperLost(number, why);
}

void Launcher::TellStates() {
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskRecord& record = supervision_.tasks()[i];
    if (record.state == tasks_[i].shown) continue;
    tasks_[i].shown = record.state;
    next_draw_ = std::min(next_draw_, Now());
    // On a terminal the status lines show them; a restart was told with its reason.
    if (options_.live || options_.quiet || record.state == RunState::kStarting || record.state == RunState::kRestarting) continue;
    std::string line = absl::StrCat(tasks_[i].name, " ", record.state == RunState::kRunning ? "is running" : StateName(record.state));
    if (record.state == RunState::kRunning) {
      absl::StrAppend(&line, ": pid ", record.pid, tasks_[i].host.empty() ? "" : " on ", tasks_[i].host, ", ", tasks_[i].address);
    } else if (record.state == RunState::kFailed && record.exit) {
      absl::StrAppend(&line, ": it ", record.exit->ToString());
    }
    Say(line);
  }
}

void Launcher::OnSignals() {
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

void Launcher::Suspend() {
  // The whole job stands still with its launcher, and goes on with it.
  const auto all = [&](int signal) {
    for (LaunchedTask& task : tasks_) {
      if (task.link) task.link->Send(FrameKind::kSignal, EncodeNumbers({signal}));
    }
  };
  all(SIGSTOP);
  output_.Drain(1);
  kill(getpid(), SIGSTOP);
  all(SIGCONT);
  for (size_t i = 0; i < tasks_.size(); ++i) supervision_.OnSuspended(static_cast<int>(i), 0);
  hang_.OnMove(Now(), absl::ZeroDuration());
  MeasureTerminal();
}

void Launcher::ReapChildren() {
  // The keepers' ends are seen where their frames are read; here they are only buried.
  pid_t pid;
  while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) {
    for (LaunchedTask& task : tasks_) {
      if (task.link && task.link->pid() == pid) task.link->OnReaped();
    }
    if (question_ && question_->pid() == pid) question_->OnReaped();
  }
}

void Launcher::KillStrays() {
  // What a keeper and its guard left behind when both were killed is this process's now.
  std::vector<pid_t> known;
  for (const LaunchedTask& task : tasks_) {
    if (task.link) known.push_back(task.link->pid());
  }
  if (question_) known.push_back(question_->pid());
  SignalDescendants(SIGKILL, known);
}

void Launcher::AskAboutHang() {
  std::vector<std::string> tasks;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskRecord& record = supervision_.tasks()[i];
    if (record.state == RunState::kRunning) tasks.push_back(absl::StrCat(TaskId{record.name.job, record.name.index}.name(), "=", tasks_[i].address));
  }
  hang_.OnAsked();
  StatusOr<HangQuestion> question = HangQuestion::Ask(kThisProgram, options_.hang.after, tasks);
  if (question.ok()) {
    question_ = *std::move(question);
  } else {
    hang_.OnAnswer(Now(), "", false);
  }
}

void Launcher::OnHangAnswer() {
  hang_answer_ = question_->answer();
  question_.reset();
  const absl::Time now = Now();
  const std::string quiet = ShortAge(now - hang_.since());
  for (size_t i = 0; i < tasks_.size(); ++i) {
    // This the launcher knows better than the tasks.
    const TaskRecord& record = supervision_.tasks()[i];
    if (record.suspended_by == 0 || record.state != RunState::kRunning) continue;
    if (!hang_answer_.cause.empty()) hang_answer_.waits.insert(hang_answer_.waits.begin(), hang_answer_.cause);
    hang_answer_.cause = absl::StrCat(record.name.ToString(), " is suspended by ", SignalName(record.suspended_by), " since ", ShortAge(now - record.suspended_since));
    break;
  }
  if (hang_answer_.cause.empty()) {
    const LaunchedTask* last = nullptr;
    for (const LaunchedTask& task : tasks_) {
      if (task.training.last_step() != absl::InfinitePast() && (last == nullptr || task.training.last_step() > last->training.last_step())) last = &task;
    }
    // Where steps were made and no longer are, that is worth a word even if nobody tells why.
    if (last != nullptr) {
      hang_answer_.cause = absl::StrCat("the last step was ", *last->training.step(), " of ", last->name, ", and no task tells what it waits for");
    }
  }
  if (!hang_.OnAnswer(now, hang_answer_.cause, /*moves=*/false)) return;
  Say(absl::StrCat("no step for ", quiet, ": ", hang_answer_.cause));
  for (const std::string& wait : hang_answer_.waits) {
    if (wait != hang_answer_.cause) Say(absl::StrCat("  ", wait));
  }
}

void Launcher::MeasureTerminal() {
  winsize size = {};
  if (options_.live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    rows_ = size.ws_row;
    columns_ = size.ws_col;
  }
  output_.SetColumns(columns_);
  next_draw_ = Now();
}

void Launcher::Draw(bool now) {
  if (!options_.live || (!now && next_draw_ > Now())) return;
  std::vector<TaskRow> rows;
  std::vector<int> colours;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    rows.push_back(RowOf(supervision_.tasks()[i], tasks_[i].training, tasks_[i].host, Now()));
    if (options_.colour) colours.push_back(TaskColour(static_cast<int>(i)));
  }
  output_.SetBlock(StatusBlock(rows, colours, rows_, columns_));
  next_draw_ = Now() + kBetweenDraws;
}

JobReport Launcher::Report() const {
  JobReport report = {.pid = getpid(),
                      .command = options_.command,
                      .directory = options_.remote.directory,
                      .state = supervision_.job_state(),
                      .seconds = absl::ToDoubleSeconds(Now() - began_),
                      .cause = supervision_.cause(),
                      .hang = hang_.cause(),
                      .waits = hang_.cause().empty() ? std::vector<std::string>() : hang_answer_.waits,
                      .tasks = {}};
  for (size_t i = 0; i < tasks_.size(); ++i) {
    report.tasks.push_back(ReportTask(supervision_.tasks()[i], tasks_[i].training, tasks_[i].host, tasks_[i].address, Now()));
  }
  return report;
}

absl::Time Launcher::NextTimer() const {
  absl::Time next = std::min(supervision_.next_timer(), next_ping_);
  if (!supervision_.ending()) next = std::min(next, hang_.ask_at());
  if (options_.live) next = std::min(next, next_draw_);
  if (output_.stale()) next = std::min(next, next_output_);
  for (const LaunchedTask& task : tasks_) next = std::min(next, task.keeper_deadline);
  return next;
}

void Launcher::OnTimer() {
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

void Launcher::Poll(absl::Time until) {
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

void Launcher::EndKeepers() {
  for (LaunchedTask& task : tasks_) {
    if (!task.link) continue;
    task.link->Close();
    // One that has not come up has nothing to end.
    if (task.keeper_deadline != absl::InfiniteFuture()) task.link->Kill(SIGTERM);
  }
  const absl::Time deadline = Now() + kKeepersEnd;
  const auto any = [&] { return std::any_of(tasks_.begin(), tasks_.end(), [](const LaunchedTask& t) { return t.link && t.link->pid() != 0; }); };
  while (any() && Now() < deadline) {
    std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
    for (const LaunchedTask& task : tasks_) fds.push_back({task.link ? task.link->out() : -1, POLLIN, 0});
    poll(fds.data(), fds.size(), 100);
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (fds[1 + i].revents != 0) tasks_[i].link->Read([&](const Frame& frame) { OnFrame(static_cast<int>(i), frame); });
    }
    OnSignals();
  }
  for (LaunchedTask& task : tasks_) {
    if (task.link) task.link->Kill(SIGKILL);
    task.link.reset();
  }
  if (question_ && question_->pid() > 0) kill(question_->pid(), SIGKILL);
  question_.reset();
  if (adopts_) KillStrays();
}

void Launcher::MergeProfiles() {
  if (options_.profile_steps.empty()) return;
  const StatusOr<std::string> path = MergeTimelines(options_.profile_dir);
  Say(path.ok() ? absl::StrCat("wrote ", *path, " (open it in chrome://tracing or ui.perfetto.dev)")
                : absl::StrCat("no timeline in ", options_.profile_dir, ": ", path.status().message()));
}

int Launcher::Run() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGWINCH, SIGTSTP}) sigaddset(&taken, number);
  sigprocmask(SIG_BLOCK, &taken, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = Fd(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  // A shell that became this process by exec may have left it children; their orphans are none of ours.
  adopts_ = Descendants(getpid()).empty();
  if (adopts_) AdoptOrphans();
  if (!options_.log_dir.empty()) {
    Status made = FileSystem::Posix()->MakeDirectories(options_.log_dir);
    for (LaunchedTask& task : tasks_) {
      const std::string path = JoinPath(options_.log_dir, absl::StrCat(absl::StrReplaceAll(task.name, {{"/", "-"}}), ".log"));
      StatusOr<std::unique_ptr<WritableFile>> log = made.ok() ? FileSystem::Posix()->OpenWritable(path) : StatusOr<std::unique_ptr<WritableFile>>(made);
      if (!log.ok()) {
        Say(absl::StrCat("--log_dir: ", log.status().message()));
        output_.Drain(1);
        return 2;
      }
      task.log = *std::move(log);
    }
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

}  // namespace

int RunLauncher(const LauncherOptions& options) { return Launcher(options).Run(); }

}  // namespace millrace::launch
