#include "millrace/launch/keeper_arrivals.h"

#include <cstdlib>

#include "absl/strings/str_join.h"
#include "millrace/launch/meeting/meeting_guard.h"

namespace millrace::launch {
namespace {

// Strangers may come without end.
constexpr int kMaxRefusalsTold = 10;
// Tasks that one message names.
constexpr size_t kMaxNamed = 10;

}  // namespace

std::string JobsText(const std::vector<TaskGroup>& groups) {
  return absl::StrJoin(groups, " + ",
                       [](std::string* out, const TaskGroup& g) { absl::StrAppend(out, g.count, " ", g.name); });
}

Status KeeperArrivals::Open() {
  if (!job_->options.meeting.has_value()) return absl::OkStatus();
  wanted_before_.resize(job_->tasks.size());
  MR_ASSIGN_OR_RETURN(place_, MeetingPlace::Open({.point = job_->options.meeting->point,
                                                  .size = static_cast<int>(job_->tasks.size()),
                                                  .jobs = JobsText(job_->options.job.groups)}));
  return absl::OkStatus();
}

void KeeperArrivals::Want(const std::vector<int>& tasks) {
  if (tasks.empty()) return;
  const MeetingLaunch& meeting = *job_->options.meeting;
  const absl::Time deadline = job_->Now() + job_->options.start_timeout;
  std::vector<int> starting;
  std::vector<std::string> hosts;
  for (const int task : tasks) {
    if (meeting.step.empty() && wanted_before_[task]) {
      job_->supervision.OnKeeperLost(task, "only the scheduler can start it again");
      continue;
    }
    wanted_before_[task] = true;
    job_->tasks[task].keeper_deadline = deadline;
    starting.push_back(task);
    hosts.push_back(job_->tasks[task].host);
  }
  if (meeting.step.empty() || starting.empty()) return;
  const std::vector<std::string> environment = {absl::StrCat(
      kMeetingVariable, "=",
      EncodeMeeting(meeting.point, static_cast<int>(job_->tasks.size()), JobsText(job_->options.job.groups)))};
  const Status started =
      steps_.Start(StepCommand(meeting.step, job_->options.remote.millrace, starting, hosts), environment, starting);
  if (started.ok()) return;
  for (const int task : starting) {
    job_->tasks[task].keeper_deadline = absl::InfiniteFuture();
    job_->supervision.OnKeeperLost(task, started.message());
  }
}

void KeeperArrivals::AddTo(std::vector<pollfd>* fds) const {
  if (place_.has_value()) place_->AddTo(fds);
}

absl::Time KeeperArrivals::next_timer() const {
  return place_.has_value() ? place_->next_timer() : absl::InfiniteFuture();
}

void KeeperArrivals::Serve() {
  if (!place_.has_value()) return;
  place_->Serve([this](const Arrival& arrival) { return Refuse(arrival); },
                [this](Arrival arrival) { Admit(std::move(arrival)); },
                [this](const std::string& who) {
                  if (++refusals_told_ <= kMaxRefusalsTold)
                    job_->Say(absl::StrCat("refused at the meeting place ", place_->name(), ": ", who));
                });
}

bool KeeperArrivals::IsAwaited(int task) const {
  const LaunchedTask& t = job_->tasks[task];
  return !t.link && t.keeper_deadline != absl::InfiniteFuture();
}

std::string KeeperArrivals::Refuse(const Arrival& arrival) const {
  const int task = arrival.hello.rank;
  if (job_->supervision.ending()) return "the job is being ended";
  if (IsAwaited(task)) return "";
  return absl::StrCat("rank ", task, " (", job_->tasks[task].name,
                      ") is there already: two processes have the same place");
}

void KeeperArrivals::Admit(Arrival arrival) {
  LaunchedTask& task = job_->tasks[arrival.hello.rank];
  if (!arrival.hello.address.empty() && task.host_address.empty()) task.host_address = arrival.hello.address;
  if (task.host.empty()) task.host = arrival.hello.address.empty() ? arrival.from : arrival.hello.address;
  task.claim.host = task.host;
  if (arrival.hello.has_gpus) task.gpus = arrival.hello.gpus;
  task.link = KeeperLink::Of(std::move(arrival));
}

void KeeperArrivals::OnMissing() {
  std::vector<std::string> missing;
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    if (!IsAwaited(static_cast<int>(i))) continue;
    job_->tasks[i].keeper_deadline = absl::InfiniteFuture();
    missing.push_back(absl::StrCat(job_->tasks[i].name, " (rank ", i, ")"));
  }
  if (missing.size() > kMaxNamed) {
    missing.resize(kMaxNamed);
    missing.push_back("...");
  }
  job_->supervision.OnRefused(
      absl::StrCat(absl::StrJoin(missing, ", "), " did not come to the meeting place ", place_->name(), " within ",
                   absl::FormatDuration(job_->options.start_timeout), ", of ", job_->tasks.size(), " tasks"));
}

void KeeperArrivals::OnReaped(pid_t pid, int wait_status) {
  steps_.OnReaped(pid, wait_status, [this](int task, const std::string& why) {
    // One that has arrived shows its end itself.
    if (!IsAwaited(task)) return;
    job_->tasks[task].keeper_deadline = absl::InfiniteFuture();
    job_->supervision.OnKeeperLost(task, why);
  });
}

}  // namespace millrace::launch
