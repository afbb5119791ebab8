#include "millrace/dashboard/watcher.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/net/grpc/grpc_transport.h"

namespace millrace::dashboard {
namespace {

constexpr absl::Duration kLauncherTimeout = absl::Seconds(2);

// The tasks of a job that may have a server, by their names in the cluster.
std::vector<TaskView> RunningTasks(const launch::JobReport& report) {
  std::vector<TaskView> tasks;
  for (const launch::JobReport::Task& task : report.tasks) {
    const size_t slash = task.task.find('/');
    int index;
    if (task.state != "running" || task.address.empty() || slash == std::string::npos ||
        !absl::SimpleAtoi(task.task.substr(slash + 1), &index))
      continue;
    tasks.push_back({.task = TaskId{task.task.substr(0, slash), index}.name(), .address = task.address});
  }
  return tasks;
}

StatusOr<launch::JobReport> ReportOf(int job, int64_t events_after) {
  MR_ASSIGN_OR_RETURN(const std::string text, launch::AskJob(job, kLauncherTimeout, {.events_after = events_after}));
  return launch::JobReport::FromJson(text);
}

}  // namespace

Watcher::Watcher(WatcherOptions options)
    : options_(std::move(options)), began_(options_.clock->Now()), began_on_wall_(WallClock::Real()->Now()) {}

Watcher::~Watcher() = default;

Status Watcher::Begin() {
  if (options_.job == 0) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(end_, launch::JobEnd::Watch(options_.job));
  return absl::OkStatus();
}

Observation Watcher::Look(int64_t events_after) {
  Observation look = {
      .title = options_.job != 0 ? absl::StrCat("job ", options_.job) : absl::StrCat("grpc://", options_.target),
      .seconds = absl::ToDoubleSeconds(options_.clock->Now() - began_)};
  if (options_.job != 0) LookAtJob(events_after, &look);
  if (!began_unix_.has_value() && (options_.job == 0 || look.job.has_value())) {
    const absl::Duration here = options_.clock->Now() - began_;
    began_unix_ = absl::ToDoubleSeconds(began_on_wall_ + here - absl::UnixEpoch()) - look.seconds;
  }
  look.began = began_unix_.value_or(0);
  if (!look.ended) LookAtTasks(&look);
  return look;
}

void Watcher::LookAtJob(int64_t events_after, Observation* look) {
  if (!ended_) {
    StatusOr<launch::JobReport> report = ReportOf(options_.job, events_after);
    if (report.ok()) {
      last_ = *std::move(report);
    } else if (!absl::IsNotFound(report.status())) {
      look->lost = std::string(report.status().message());
    }
  }
  look->ended = ended_;
  if (ended_ && last_.has_value() && last_->verdict.empty())
    last_->verdict = "the launcher was killed; it could not say how the job ended";
  if (!last_.has_value()) return;
  look->job = last_;
  if (look->lost.empty()) look->seconds = last_->seconds;
}

std::vector<TaskView> Watcher::AskAll(const Observation& look) {
  if (options_.job == 0) {
    if (transport_ == nullptr) transport_ = net::NewGrpcTransport({.tls = options_.tls});
    return AskCluster(transport_.get(), options_.target, options_.timeout);
  }
  if (!look.job.has_value()) return {};
  std::vector<TaskView> tasks = RunningTasks(*look.job);
  if (tasks.empty()) return {};
  if (transport_ == nullptr) {
    transport_ = net::NewGrpcTransport(
        {.tls = look.job->credentials ? std::make_shared<const TlsCredentials>(*look.job->credentials) : nullptr});
  }
  tasks = AskTasks(transport_.get(), std::move(tasks), options_.timeout);
  // A program without a server refuses; that is not a fault of a task that a launcher knows to run.
  std::erase_if(tasks,
                [](const TaskView& view) { return !view.answer.ok() && !absl::IsDeadlineExceeded(view.answer); });
  return tasks;
}

void Watcher::LookAtTasks(Observation* look) {
  look->tasks = AskAll(*look);
  look->hang = ExplainHang(look->tasks, options_.hang_after);
  const bool any = std::any_of(look->tasks.begin(), look->tasks.end(),
                               [](const TaskView& view) { return view.answer.ok() && !view.is_tensorflow; });
  if (any && !before_.empty()) look->bottleneck = FindBottleneck(before_, look->tasks, options_.ceilings);
  before_ = any ? look->tasks : std::vector<TaskView>();
}

void Watcher::Rest(absl::Duration pause, int wake) {
  if (end_.has_value() && !ended_) {
    ended_ = end_->Wait(pause, wake);
    if (!ended_) return;
    if (StatusOr<launch::JobReport> report = launch::JobReport::FromJson(end_->report()); report.ok())
      last_ = *std::move(report);
    return;
  }
  pollfd ready = {wake, POLLIN, 0};
  poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(std::min(pause, absl::Hours(1)))));
}

std::string Watcher::Output(const std::string& task) const {
  if (options_.job == 0 || ended_) return "";
  return launch::AskJob(options_.job, kLauncherTimeout, {.kind = launch::JobRequest::Kind::kOutput, .task = task})
      .value_or("");
}

}  // namespace millrace::dashboard
