#include "millrace/launch/status_display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "millrace/base/affinity.h"
#include "millrace/launch/task_board.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kBetweenDraws = absl::Milliseconds(250);

// The kind of event that entering the state is; null: none.
const char* EventOf(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "start";
    case RunState::kRestarting:
      return "restart";
    case RunState::kSucceeded:
      return "end";
    case RunState::kFailed:
      return "fail";
    case RunState::kLost:
      return "lose";
    case RunState::kStopped:
      return "stop";
    case RunState::kPending:
    case RunState::kStarting:
      break;
  }
  return nullptr;
}

std::string EventText(const TaskRecord& record) {
  if (record.state == RunState::kRunning)
    return record.restarts > 0 ? absl::StrCat("runs again, restart ", record.restarts, ", pid ", record.pid)
                               : absl::StrCat("runs, pid ", record.pid);
  const bool failed = record.state == RunState::kFailed || record.state == RunState::kRestarting;
  if (failed && record.exit)
    return absl::StrCat(record.exit->ToString(), record.state == RunState::kRestarting ? "; is restarted" : "");
  return StateName(record.state);
}

}  // namespace

void StatusDisplay::TellStates() {
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    const TaskRecord& record = job_->supervision.tasks()[i];
    if (record.state == job_->tasks[i].shown) continue;
    job_->tasks[i].shown = record.state;
    if (const char* kind = EventOf(record.state)) job_->Note(kind, job_->tasks[i].name, EventText(record));
    next_draw_ = std::min(next_draw_, job_->Now());
    // On a terminal the status lines show the states, and a restart has been reported with its reason.
    if (job_->options.live || job_->options.quiet || record.state == RunState::kStarting ||
        record.state == RunState::kRestarting)
      continue;
    std::string line = absl::StrCat(job_->tasks[i].name, " ",
                                    record.state == RunState::kRunning ? "is running" : StateName(record.state));
    if (record.state == RunState::kRunning) {
      absl::StrAppend(&line, ": pid ", record.pid, job_->tasks[i].host.empty() ? "" : " on ", job_->tasks[i].host, ", ",
                      job_->tasks[i].address);
      if (!job_->tasks[i].cores.empty()) absl::StrAppend(&line, ", cores ", CoreList(job_->tasks[i].cores));
    } else if (record.state == RunState::kFailed && record.exit) {
      absl::StrAppend(&line, ": it ", record.exit->ToString());
    }
    job_->Say(line);
  }
}

void StatusDisplay::MeasureTerminal() {
  winsize size = {};
  if (job_->options.live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    rows_ = size.ws_row;
    columns_ = size.ws_col;
  }
  job_->output.SetColumns(columns_);
  next_draw_ = job_->Now();
}

void StatusDisplay::Draw(bool now) {
  if (!job_->options.live || (!now && next_draw_ > job_->Now())) return;
  next_draw_ = job_->Now() + kBetweenDraws;
  // While the job is in the background, the terminal belongs to the shell.
  const pid_t foreground = tcgetpgrp(STDOUT_FILENO);
  if (foreground > 0 && foreground != getpgrp()) return job_->output.EndBlock();
  std::vector<TaskRow> rows;
  std::vector<int> colours;
  for (size_t i = 0; i < job_->tasks.size(); ++i) {
    rows.push_back(RowOf(job_->supervision.tasks()[i], job_->tasks[i].training, job_->tasks[i].host, job_->Now()));
    rows.back().cores = CoreList(job_->tasks[i].cores);
    if (job_->options.colour) colours.push_back(TaskColour(static_cast<int>(i)));
  }
  job_->output.SetBlock(StatusBlock(rows, colours, rows_, columns_));
}

}  // namespace millrace::launch
