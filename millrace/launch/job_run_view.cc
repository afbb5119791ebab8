// What the user is shown and told.
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "millrace/base/affinity.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/launch/job_run.h"
#include "millrace/train/timeline.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kBetweenDraws = absl::Milliseconds(250);

}  // namespace

void JobRun::TellStates() {
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
      if (!tasks_[i].cores.empty()) absl::StrAppend(&line, ", cores ", CoreList(tasks_[i].cores));
    } else if (record.state == RunState::kFailed && record.exit) {
      absl::StrAppend(&line, ": it ", record.exit->ToString());
    }
    Say(line);
  }
}

void JobRun::AskAboutHang() {
  std::vector<std::string> tasks;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskRecord& record = supervision_.tasks()[i];
    if (record.state == RunState::kRunning && cluster_.contains(record.name.job)) tasks.push_back(absl::StrCat(TaskId{record.name.job, record.name.index}.name(), "=", tasks_[i].address));
  }
  hang_.OnAsked();
  StatusOr<HangQuestion> question = HangQuestion::Ask(kThisProgram, hang_.wait_limit(), tasks);
  if (question.ok()) {
    question_ = *std::move(question);
  } else {
    hang_.OnAnswer(Now(), "");
  }
}

void JobRun::OnHangAnswer() {
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
  // What programs say themselves, where their servers tell of no wait: before the first step there may be none.
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const Training& training = tasks_[i].training;
    if (supervision_.tasks()[i].state != RunState::kRunning || !absl::StrContains(training.phase(), "wait")) continue;
    if (now - training.phase_since() < hang_.wait_limit()) continue;
    hang_answer_.waits.push_back(absl::StrCat(tasks_[i].name, " has been ", training.phase(), " for ", ShortAge(now - training.phase_since())));
    if (hang_answer_.cause.empty()) hang_answer_.cause = hang_answer_.waits.back();
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
  if (!hang_.OnAnswer(now, hang_answer_.cause)) return;
  Say(absl::StrCat("no step for ", quiet, ": ", hang_answer_.cause));
  for (const std::string& wait : hang_answer_.waits) {
    if (wait != hang_answer_.cause) Say(absl::StrCat("  ", wait));
  }
}

void JobRun::MeasureTerminal() {
  winsize size = {};
  if (options_.live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    rows_ = size.ws_row;
    columns_ = size.ws_col;
  }
  output_.SetColumns(columns_);
  next_draw_ = Now();
}

void JobRun::Draw(bool now) {
  if (!options_.live || (!now && next_draw_ > Now())) return;
  next_draw_ = Now() + kBetweenDraws;
  // In the background the terminal is the shell's.
  const pid_t foreground = tcgetpgrp(STDOUT_FILENO);
  if (foreground > 0 && foreground != getpgrp()) return output_.EndBlock();
  std::vector<TaskRow> rows;
  std::vector<int> colours;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    rows.push_back(RowOf(supervision_.tasks()[i], tasks_[i].training, tasks_[i].host, Now()));
    rows.back().cores = CoreList(tasks_[i].cores);
    if (options_.colour) colours.push_back(TaskColour(static_cast<int>(i)));
  }
  output_.SetBlock(StatusBlock(rows, colours, rows_, columns_));
}

JobReport JobRun::Report() const {
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
    report.tasks.back().cores = CoreList(tasks_[i].cores);
  }
  return report;
}

void JobRun::MergeProfiles() {
  if (options_.profile_steps.empty()) return;
  const StatusOr<std::string> path = MergeTimelines(options_.profile_dir);
  Say(path.ok() ? absl::StrCat("wrote ", *path, " (open it in chrome://tracing or ui.perfetto.dev)")
                : absl::StrCat("no timeline in ", options_.profile_dir, ": ", path.status().message()));
}

}  // namespace millrace::launch
