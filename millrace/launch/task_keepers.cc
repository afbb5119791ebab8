#include "millrace/launch/task_keepers.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "millrace/base/notice.h"
#include "millrace/cluster/server_environment.h"
#include "millrace/launch/gpu_shares.h"
#include "millrace/launch/process_tree.h"
#include "millrace/launch/training_text.h"
#include "millrace/net/address.h"
#include "millrace/train/progress.h"
#include "millrace/train/timeline/profile_variables.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kKeepersEnd = absl::Seconds(10);
// The number of connections that are set up concurrently; ssh servers refuse too many.
constexpr int kMaxConnecting = 8;

// In case its keeper and guard were killed before they could.
void RemoveCredentials(LaunchedTask* task) {
  if (!task->credential_folder.empty()) FileSystem::Posix()->RemoveTree(task->credential_folder).IgnoreError();
  task->credential_folder.clear();
}

}  // namespace

void TaskKeepers::OpenWanted() {
  const auto connects = [](const LaunchedTask& t) {
    return !t.host.empty() && t.keeper_deadline != absl::InfiniteFuture();
  };
  const auto connecting = std::count_if(job_->tasks.begin(), job_->tasks.end(), connects);
  int64_t room = kMaxConnecting - connecting;
  std::vector<int> later, coming;
  for (const int number : std::exchange(wanted_, {})) {
    LaunchedTask& task = job_->tasks[number];
    if (job_->supervision.ending()) continue;
    if (job_->options.meeting.has_value() && number != job_->options.meeting->own_task) {
      coming.push_back(number);
      continue;
    }
    if (!task.host.empty() && room-- <= 0) {
      later.push_back(number);
      continue;
    }
    StatusOr<KeeperLink> link = KeeperLink::Open(kThisProgram, task.host, job_->options.remote, task.name);
    if (!link.ok()) {
      job_->supervision.OnKeeperLost(number, link.status().message());
      continue;
    }
    task.link = *std::move(link);
    task.keeper_deadline = job_->Now() + job_->options.start_timeout;
  }
  wanted_ = std::move(later);
  arrivals_->Want(coming);
}

Status TaskKeepers::BindWorkers() {
  std::vector<CoreClaim> claims;
  for (const LaunchedTask& task : job_->tasks) claims.push_back(task.claim);
  StatusOr<std::vector<std::vector<int>>> cores = ShareOutCores(claims);
  if (!cores.ok()) return WithPrefix("--bind_workers: ", cores.status());
  for (size_t i = 0; i < job_->tasks.size(); ++i) job_->tasks[i].cores = std::move((*cores)[i]);
  return absl::OkStatus();
}

Status TaskKeepers::AddAccess(const LaunchedTask& task, const TaskGroup& group, StartFrame* start) const {
  const LauncherOptions& options = job_->options;
  // "/" stands for all files: nobody but the job's own processes can use its servers.
  const std::string roots =
      options.file_roots.empty() ? (options.insecure ? "" : "/") : absl::StrJoin(options.file_roots, ":");
  start->environment.push_back(absl::StrCat(kFileRootVariable, "=", roots));
  start->environment.push_back(absl::StrCat(kInsecureVariable, "=", options.insecure ? "1" : ""));
  if (job_->authority == nullptr) return absl::OkStatus();
  std::vector<std::string> hosts = {task.host_address};
  if (net::IsLoopback(task.host_address)) hosts = {"localhost", "127.0.0.1", "::1", task.host_address};
  MR_ASSIGN_OR_RETURN(start->credentials,
                      job_->authority->Issue(task.name, hosts,
                                             group.side ? net::CertificateRole::kClient : net::CertificateRole::kTask));
  return absl::OkStatus();
}

void TaskKeepers::MakeCluster() {
  std::vector<GpuClaim> claims;
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    const TaskGroup& group = GroupOf(job_->options.job, job_->supervision.tasks()[i].name.job);
    if (!group.side) job_->cluster[group.name].push_back(job_->tasks[i].address);
    claims.push_back({job_->tasks[i].host_address, job_->tasks[i].gpus, group.trains()});
  }
  gpus_.resize(claims.size());
  if (job_->options.share_gpus) gpus_ = ShareGpus(claims);
}

void TaskKeepers::StartProgram(int number) {
  LaunchedTask& task = job_->tasks[number];
  if (!task.link) return;  // lost meanwhile; supervision knows
  const TaskName& name = job_->supervision.tasks()[number].name;
  if (job_->cluster.empty()) MakeCluster();
  const TaskGroup& group = GroupOf(job_->options.job, name.job);
  StartFrame start;
  start.arguments =
      FillIn(group.program.empty() ? job_->options.job.program : group.program, job_->cluster, name, task.address);
  if (job_->options.host_flags && group.program.empty()) {
    for (std::string& flag : HostFlags(job_->cluster, name)) start.arguments.push_back(std::move(flag));
  }
  start.cores = task.cores;
  start.environment = job_->options.environment;
  start.environment.push_back(absl::StrCat("TF_CONFIG=", TfConfig(job_->cluster, name)));
  start.environment.push_back(absl::StrCat("MILLRACE_TASK=", task.name));
  if (job_->options.meeting.has_value()) {
    for (const char* secret : {kJobSecretVariable, kMeetingVariable})
      start.environment.push_back(absl::StrCat(secret, "="));
  }
  start.environment.push_back(absl::StrCat("MILLRACE_JOB=", getpid()));
  start.environment.push_back(absl::StrCat(kGraceVariable, "=", absl::ToDoubleSeconds(job_->options.job.grace)));
  if (job_->options.notice_signal != SIGTERM)
    start.environment.push_back(absl::StrCat(kNoticeSignalVariable, "=", SignalName(job_->options.notice_signal)));
  start.environment.push_back(absl::StrCat(kRestartsVariable, "=", job_->supervision.tasks()[number].restarts));
  if (const Status secured = AddAccess(task, group, &start); !secured.ok())
    return job_->supervision.OnNotStarted(number, secured.message(), 126);
  if (gpus_[number].has_value()) start.environment.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES=", *gpus_[number]));
  if (getenv("PYTHONUNBUFFERED") == nullptr) start.environment.emplace_back("PYTHONUNBUFFERED=1");
  if (!job_->options.profile_steps.empty()) {
    start.environment.push_back(absl::StrCat(kProfileStepsVariable, "=", job_->options.profile_steps));
    start.environment.push_back(absl::StrCat(kProfileDirVariable, "=", job_->options.profile_dir));
  }
  task.last_error.clear();
  task.training.Restart();
  const std::string body = start.Encode();
  if (body.size() > kMaxFrameBody)
    return job_->supervision.OnNotStarted(number, "its arguments and environment are too long", 126);
  task.link->Send(KeeperFrameKind::kStart, body);
}

void TaskKeepers::Send(int number, KeeperFrameKind kind, absl::string_view body) {
  if (job_->tasks[number].link) job_->tasks[number].link->Send(kind, body);
}

void TaskKeepers::SendToAll(KeeperFrameKind kind, absl::string_view body) {
  for (size_t i = 0; i < job_->tasks.size(); ++i) Send(static_cast<int>(i), kind, body);
}

void TaskKeepers::OnFrame(int number, const KeeperFrame& frame) {
  LaunchedTask& task = job_->tasks[number];
  const auto numbers = [&](int count) {
    return DecodeNumbers(frame.body, count).value_or(NumbersAndText{std::vector<int64_t>(count, 0), ""});
  };
  switch (frame.kind) {
    case KeeperFrameKind::kHello: {
      const StatusOr<HelloFrame> hello = HelloFrame::Decode(frame.body);
      if (!hello.ok()) return;
      task.keeper_deadline = absl::InfiniteFuture();
      if (task.host.empty()) task.credential_folder = hello->credential_folder;
      // After a loss the task keeps its address.
      if (task.address.empty()) {
        task.address = net::JoinHostPort(task.host_address, static_cast<int>(hello->port));
        if (!task.host.empty()) {
          task.claim.machine = hello->machine;
          task.claim.cores = hello->cores;
        }
        const bool all = std::none_of(job_->tasks.begin(), job_->tasks.end(),
                                      [](const LaunchedTask& t) { return t.address.empty(); });
        if (const Status bound = all ? BindWorkers() : absl::OkStatus(); !bound.ok())
          return job_->supervision.OnRefused(bound.message());
      }
      job_->supervision.OnKeeperReady(number);
      return;
    }
    case KeeperFrameKind::kStarted:
      job_->supervision.OnStarted(number, numbers(1).numbers[0]);
      display_->TellStates();  // before its end, which may follow in the same batch of frames
      return job_->hang.OnMove(job_->Now(), absl::ZeroDuration());
    case KeeperFrameKind::kNotStarted: {
      const NumbersAndText why = numbers(1);
      // A keeper that finds no free port sends this instead of hello, and exits.
      if (task.keeper_deadline != absl::InfiniteFuture()) task.last_error = why.text;
      return job_->supervision.OnNotStarted(number, why.text, why.numbers[0] == ENOENT ? 127 : 126);
    }
    case KeeperFrameKind::kStdout:
      return OnOutput(number, false, frame.body);
    case KeeperFrameKind::kStderr:
      return OnOutput(number, true, frame.body);
    case KeeperFrameKind::kProgress:
      if (const StatusOr<TrainingProgress> progress = ParseProgress(frame.body); progress.ok()) {
        OnProgress(number, *progress, /*told=*/true);
        if (progress->notice == "given")
          job_->Note("notice", task.name, absl::StrCat(SignalName(progress->signal), " to it"));
        if (!progress->notice.empty()) job_->supervision.OnNoticeWord(number, *progress);
      }
      return;
    case KeeperFrameKind::kExited: {
      const NumbersAndText exit = numbers(2);
      FlushLines(number);
      job_->hang.OnMove(job_->Now(), absl::ZeroDuration());
      return job_->supervision.OnExited(
          number, {.code = static_cast<int>(exit.numbers[0]), .signal = static_cast<int>(exit.numbers[1])},
          task.last_error);
    }
    case KeeperFrameKind::kSuspended: {
      const int signal = static_cast<int>(numbers(1).numbers[0]);
      job_->Note(signal != 0 ? "suspend" : "resume", task.name,
                 signal != 0 ? absl::StrCat("suspended by ", SignalName(signal)) : "continues");
      return job_->supervision.OnSuspended(number, signal);
    }
    case KeeperFrameKind::kGone:
      FlushLines(number);
      return job_->supervision.OnGone(number);
    case KeeperFrameKind::kInterrupted:
      return job_->OnInterrupt(static_cast<int>(numbers(1).numbers[0]));
    default:
      return;
  }
}

void TaskKeepers::OnOutput(int number, bool error, absl::string_view bytes) {
  LaunchedTask& task = job_->tasks[number];
  if (!job_->logs.Add(number, bytes) && !std::exchange(task.log_is_behind, true))
    job_->Say(absl::StrCat("the log of ", task.name, " will be incomplete: the disk of --log_dir does not keep up"));
  (error ? task.error : task.out).Add(bytes, [&](absl::string_view line) { OnLine(number, error, line); });
}

void TaskKeepers::FlushLines(int number) {
  for (const bool error : {false, true}) {
    (error ? job_->tasks[number].error : job_->tasks[number].out).Flush([&](absl::string_view line) {
      OnLine(number, error, line);
    });
  }
}

void TaskKeepers::OnLine(int number, bool error, absl::string_view line) {
  LaunchedTask& task = job_->tasks[number];
  task.tail.Add(line);
  // Indented lines only explain the line above them, such as the nodes of an error.
  if (error && !line.empty() && !absl::ascii_isspace(line[0])) task.last_error = ForTerminal(line);
  if (const TrainingProgress progress = ReadTrainingText(line); progress.step || progress.loss)
    OnProgress(number, progress, /*told=*/false);
  if (!ShowsOutput(number)) return;
  const std::string text =
      job_->options.live ? absl::StrCat(task.prefix, ForTerminal(line), "\n") : absl::StrCat(task.prefix, line, "\n");
  if (error) {
    job_->output.Error(text);
  } else {
    job_->output.Out(text);
  }
}

bool TaskKeepers::ShowsOutput(int task) const {
  // The other keepers of `millrace place` show it where the scheduler expects it.
  return !job_->options.meeting.has_value() || job_->options.meeting->own_task < 0 ||
         job_->options.meeting->own_task == task;
}

void TaskKeepers::OnProgress(int number, const TrainingProgress& progress, bool told) {
  Training& training = job_->tasks[number].training;
  const absl::Time before = training.last_step();
  training.Add(progress, told, job_->Now());
  if (progress.saved)
    job_->Note("save", job_->tasks[number].name, absl::StrCat("checkpoint of step ", *progress.saved));
  if (training.step()) job_->supervision.OnStep(number, *training.step());
  if (training.last_step() != before) {
    job_->hang.OnMove(job_->Now(), training.longest_step());
    inquiry_->Forget();
  }
}

void TaskKeepers::Lose(int number, std::string why) {
  LaunchedTask& task = job_->tasks[number];
  task.link.reset();
  task.keeper_deadline = absl::InfiniteFuture();
  if (adopts_) KillStrays();
  RemoveCredentials(&task);
  if (!task.host.empty())
    why = why.empty() ? absl::StrCat("the connection to ", task.host, " ended") : absl::StrCat(task.host, ": ", why);
  if (why.empty()) why = task.address.empty() ? task.last_error : "its keeper was killed";
  job_->supervision.OnKeeperLost(number, why);
}

void TaskKeepers::KillStrays() {
  // If a keeper and its guard were both killed, their descendants are now children of this process.
  std::vector<pid_t> known;
  for (const LaunchedTask& task : job_->tasks) {
    if (task.link) known.push_back(task.link->pid());
  }
  if (inquiry_->pid() != 0) known.push_back(inquiry_->pid());
  if (dashboard_ != 0) known.push_back(dashboard_);
  if (job_->logs.pid() != 0) known.push_back(job_->logs.pid());
  for (const pid_t pid : arrivals_->steps()->pids()) known.push_back(pid);
  SignalDescendants(SIGKILL, known);
}

void TaskKeepers::End(int signals, int code, absl::FunctionRef<void()> on_signals) {
  // The scheduler has the job's exit code from any task, but for a step of the launcher's own, which would report it as
  // an error of its own.
  const bool steps = arrivals_->steps()->any();
  for (LaunchedTask& task : job_->tasks) {
    if (!task.link) continue;
    if (task.link->met()) task.link->Send(KeeperFrameKind::kFinish, EncodeNumbers({steps ? 0 : code}));
    task.link->Close();
    // A keeper that never came up has nothing to end.
    if (task.keeper_deadline != absl::InfiniteFuture()) task.link->Kill(SIGTERM);
  }
  const absl::Time deadline = job_->Now() + kKeepersEnd;
  const auto any = [&] {
    return arrivals_->steps()->any() || std::any_of(job_->tasks.begin(), job_->tasks.end(), [](const LaunchedTask& t) {
             return t.link && (t.link->pid() != 0 || (t.link->met() && t.link->out() >= 0));
           });
  };
  while (any() && job_->Now() < deadline) {
    std::vector<pollfd> fds = {{signals, POLLIN, 0}};
    for (const LaunchedTask& task : job_->tasks) fds.push_back({task.link ? task.link->out() : -1, POLLIN, 0});
    poll(fds.data(), fds.size(), 100);
    for (size_t i = 0; i < job_->tasks.size(); ++i) {
      if (fds[1 + i].revents != 0)
        job_->tasks[i].link->Read([&](const KeeperFrame& frame) { OnFrame(static_cast<int>(i), frame); });
    }
    on_signals();
  }
  for (LaunchedTask& task : job_->tasks) {
    if (task.link) task.link->Kill(SIGKILL);
    task.link.reset();
  }
  arrivals_->steps()->Signal(SIGKILL);
  inquiry_->Kill();
  if (adopts_) KillStrays();
  for (LaunchedTask& task : job_->tasks) RemoveCredentials(&task);
}

}  // namespace millrace::launch
