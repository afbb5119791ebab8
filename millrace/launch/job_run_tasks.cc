// What goes to the keepers and what comes from them.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "millrace/launch/job_run.h"
#include "millrace/launch/process_tree.h"
#include "millrace/launch/training_text.h"
#include "millrace/train/timeline.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kKeepersEnd = absl::Seconds(10);
// Connections that are being made at once: ssh servers refuse when there are too many.
constexpr int kMaxConnecting = 8;

}  // namespace

void JobRun::OpenKeepers() {
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

Status JobRun::BindWorkers() {
  std::vector<CoreClaim> claims;
  for (const LaunchedTask& task : tasks_) claims.push_back(task.claim);
  StatusOr<std::vector<std::vector<int>>> cores = ShareOutCores(claims);
  if (!cores.ok()) return WithPrefix("--bind_workers: ", cores.status());
  for (size_t i = 0; i < tasks_.size(); ++i) tasks_[i].cores = std::move((*cores)[i]);
  return absl::OkStatus();
}

void JobRun::StartProgram(int number) {
  LaunchedTask& task = tasks_[number];
  if (!task.link) return;  // lost since, as supervision knows
  const TaskName& name = supervision_.tasks()[number].name;
  if (cluster_.empty()) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const std::string& job = supervision_.tasks()[i].name.job;
      if (!GroupOf(options_.job, job).side) cluster_[job].push_back(tasks_[i].address);
    }
  }
  const TaskGroup& group = GroupOf(options_.job, name.job);
  StartFrame start;
  start.arguments = FillIn(group.program.empty() ? options_.job.program : group.program, cluster_, name, task.address);
  if (options_.host_flags && group.program.empty()) {
    for (std::string& flag : HostFlags(cluster_, name)) start.arguments.push_back(std::move(flag));
  }
  start.cores = task.cores;
  start.environment = options_.environment;
  start.environment.push_back(absl::StrCat("TF_CONFIG=", TfConfig(cluster_, name)));
  start.environment.push_back(absl::StrCat("MILLRACE_TASK=", task.name));
  start.environment.push_back(absl::StrCat("MILLRACE_JOB=", getpid()));
  if (getenv("PYTHONUNBUFFERED") == nullptr) start.environment.emplace_back("PYTHONUNBUFFERED=1");
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

void JobRun::OnFrame(int number, const Frame& frame) {
  LaunchedTask& task = tasks_[number];
  const auto numbers = [&](int count) { return DecodeNumbers(frame.body, count).value_or(NumbersAndText{std::vector<int64_t>(count, 0), ""}); };
  switch (frame.kind) {
    case FrameKind::kHello: {
      const StatusOr<HelloFrame> hello = HelloFrame::Decode(frame.body);
      if (!hello.ok()) return;
      task.keeper_deadline = absl::InfiniteFuture();
      // After a loss the task keeps its place.
      if (task.address.empty()) {
        task.address = absl::StrCat(task.host_address, ":", hello->port);
        if (!task.host.empty()) {
          task.claim.machine = hello->machine;
          task.claim.cores = hello->cores;
        }
        const bool all = std::none_of(tasks_.begin(), tasks_.end(), [](const LaunchedTask& t) { return t.address.empty(); });
        if (const Status bound = all ? BindWorkers() : absl::OkStatus(); !bound.ok()) return supervision_.OnRefused(bound.message());
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
      // A keeper that has no port says so instead of hello, and ends.
      if (task.keeper_deadline != absl::InfiniteFuture()) task.last_error = why.text;
      return supervision_.OnNotStarted(number, why.text, why.numbers[0] == ENOENT ? 127 : 126);
    }
    case FrameKind::kStdout: return OnOutput(number, false, frame.body);
    case FrameKind::kStderr: return OnOutput(number, true, frame.body);
    case FrameKind::kProgress:
      if (const StatusOr<TrainingProgress> progress = ParseProgress(frame.body); progress.ok()) OnProgress(number, *progress, /*told=*/true);
      return;
    case FrameKind::kExited: {
      const NumbersAndText exit = numbers(2);
      FlushLines(number);
      hang_.OnMove(Now(), absl::ZeroDuration());
      return supervision_.OnExited(number, {.code = static_cast<int>(exit.numbers[0]), .signal = static_cast<int>(exit.numbers[1])}, task.last_error);
    }
    case FrameKind::kSuspended: return supervision_.OnSuspended(number, static_cast<int>(numbers(1).numbers[0]));
    case FrameKind::kGone:
      FlushLines(number);
      return supervision_.OnGone(number);
    default: return;
  }
}

void JobRun::OnOutput(int number, bool error, absl::string_view bytes) {
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

void JobRun::FlushLines(int number) {
  for (const bool error : {false, true}) {
    (error ? tasks_[number].error : tasks_[number].out).Flush([&](absl::string_view line) { OnLine(number, error, line); });
  }
}

void JobRun::OnLine(int number, bool error, absl::string_view line) {
  LaunchedTask& task = tasks_[number];
  // What is indented explains the line above it, as the nodes of an error do.
  if (error && !line.empty() && !absl::ascii_isspace(line[0])) task.last_error = ForTerminal(line);
  if (const TrainingProgress progress = ReadTrainingText(line); progress.step || progress.loss) OnProgress(number, progress, /*told=*/false);
  const std::string text = options_.live ? absl::StrCat(task.prefix, ForTerminal(line), "\n") : absl::StrCat(task.prefix, line, "\n");
  if (error) {
    output_.Error(text);
  } else {
    output_.Out(text);
  }
}

void JobRun::OnProgress(int number, const TrainingProgress& progress, bool told) {
  Training& training = tasks_[number].training;
  const absl::Time before = training.last_step();
  training.Add(progress, told, Now());
  if (training.step()) supervision_.OnStep(number, *training.step());
  if (training.last_step() != before) {
    hang_.OnMove(Now(), training.longest_step());
    hang_answer_ = {};
  }
}

void JobRun::LoseKeeper(int number, std::string why) {
  LaunchedTask& task = tasks_[number];
  task.link.reset();
  task.keeper_deadline = absl::InfiniteFuture();
  if (adopts_) KillStrays();
  if (!task.host.empty()) why = why.empty() ? absl::StrCat("the connection to ", task.host, " ended") : absl::StrCat(task.host, ": ", why);
  if (why.empty()) why = task.address.empty() ? task.last_error : "its keeper was killed";
  supervision_.OnKeeperLost(number, why);
}

void JobRun::KillStrays() {
  // What a keeper and its guard left behind when both were killed is this process's now.
  std::vector<pid_t> known;
  for (const LaunchedTask& task : tasks_) {
    if (task.link) known.push_back(task.link->pid());
  }
  if (question_) known.push_back(question_->pid());
  SignalDescendants(SIGKILL, known);
}

void JobRun::EndKeepers() {
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

}  // namespace millrace::launch
