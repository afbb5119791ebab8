#include "millrace/launch/task_board.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "millrace/launch/stream_lines.h"
#include "millrace/launch/terminal_output.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(10);
constexpr absl::Duration kBetweenSamples = absl::Milliseconds(250);
// The length limit of a phase that a program reports.
constexpr int kPhaseWidth = 120;

}  // namespace

void Training::Add(const TrainingProgress& progress, bool told, absl::Time now) {
  if (told_ && !told) return;
  told_ = told_ || told;
  if (progress.loss) loss_ = progress.loss;
  if (progress.saved) {
    checkpoint_ = progress.saved;
    checkpoint_at_ = now;
  }
  if (std::string phase = CutToWidth(ForTerminal(progress.phase), kPhaseWidth); !phase.empty() && phase != phase_) {
    phase_ = std::move(phase);
    waits_ = progress.waits;
    phase_since_ = now;
  }
  if (!progress.step) return;
  const bool grew = !step_ || *progress.step > *step_;
  // The step went back, after a restart from a checkpoint: restart the measurement of the speed.
  if (step_ && *progress.step < *step_) samples_.clear();
  step_ = progress.step;
  if (grew) {
    if (last_step_ != absl::InfinitePast()) longest_step_ = std::max(longest_step_, now - last_step_);
    last_step_ = now;
  }
  while (samples_.size() > 1 && now - samples_[1].at > kWindow) samples_.pop_front();
  if (samples_.size() > 1 && now - samples_[samples_.size() - 2].at < kBetweenSamples) samples_.pop_back();
  samples_.push_back({now, *step_});
}

void Training::Restart() {
  phase_.clear();
  waits_ = false;
  samples_.clear();
  last_step_ = absl::InfinitePast();
}

std::optional<double> Training::steps_per_second(absl::Time now) const {
  if (samples_.size() < 2) return std::nullopt;
  // The speed decreases while no step comes.
  const absl::Time end = std::max(samples_.back().at, now - samples_.back().at > kWindow ? now : samples_.back().at);
  const double seconds = absl::ToDoubleSeconds(end - samples_.front().at);
  if (seconds <= 0) return std::nullopt;
  return static_cast<double>(samples_.back().step - samples_.front().step) / seconds;
}

std::string ShortAge(absl::Duration age) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(age));
  if (seconds < 99.5) return absl::StrFormat("%.0f s", seconds);
  if (seconds < 5970) return absl::StrFormat("%.0f min", seconds / 60);
  if (seconds < 172800) return absl::StrFormat("%.1f h", seconds / 3600);
  return absl::StrFormat("%.1f days", seconds / 86400);
}

TaskRow RowOf(const TaskRecord& record, const Training& training, const std::string& host, absl::Time now) {
  TaskRow row = {.task = record.name.ToString(), .state = StateName(record.state), .host = host};
  if (record.pid > 0) row.pid = absl::StrCat(record.pid);
  if (training.step()) row.step = absl::StrCat(*training.step());
  if (training.loss()) row.loss = absl::StrFormat("%.4g", *training.loss());
  if (record.state == RunState::kRunning) {
    if (const std::optional<double> rate = training.steps_per_second(now))
      row.rate = absl::StrFormat("%.*f", *rate < 9.95 ? 1 : 0, *rate);
    row.phase = training.phase();
    if (record.suspended_by != 0)
      row.phase = absl::StrCat("suspended by ", SignalName(record.suspended_by), " for ",
                               ShortAge(now - record.suspended_since));
  } else if (record.exit && (record.state == RunState::kFailed || record.state == RunState::kRestarting)) {
    row.phase = record.exit->ToString();
  }
  if (record.restarts > 0) row.restarts = absl::StrCat(record.restarts);
  row.since = ShortAge(now - record.since);
  return row;
}

int TaskColour(int task) {
  static constexpr int kColours[] = {36, 32, 33, 35, 34, 96, 92, 93, 95, 94};
  return kColours[task % std::size(kColours)];
}

std::vector<std::string> StatusBlock(const std::vector<TaskRow>& tasks, const std::vector<int>& colours, int rows,
                                     int columns) {
  // Leaves room for some of the output.
  const size_t most = static_cast<size_t>(std::max(1, std::min(rows - 3, rows * 2 / 3)));
  const size_t shown = tasks.size() <= most ? tasks.size() : most - 1;
  size_t widths[3] = {0, 0, 0};
  for (const TaskRow& row : tasks) {
    widths[0] = std::max(widths[0], row.task.size());
    widths[1] = std::max(widths[1], row.state.size());
    widths[2] = std::max(widths[2], row.step.size());
  }
  std::vector<std::string> block;
  for (size_t i = 0; i < shown; ++i) {
    const TaskRow& row = tasks[i];
    std::string line = absl::StrFormat("%-*s  %-*s  %6s", widths[0], row.task, widths[1], row.state, row.since);
    if (!row.step.empty()) absl::StrAppend(&line, absl::StrFormat("  step %*s", widths[2], row.step));
    if (!row.loss.empty()) absl::StrAppend(&line, "  loss ", row.loss);
    if (!row.rate.empty()) absl::StrAppend(&line, "  ", row.rate, " steps/s");
    if (!row.restarts.empty())
      absl::StrAppend(&line, "  ", row.restarts, row.restarts == "1" ? " restart" : " restarts");
    if (!row.cores.empty()) absl::StrAppend(&line, "  cores ", row.cores);
    if (!row.phase.empty()) absl::StrAppend(&line, "  ", row.phase);
    // A full line would make some terminals wrap.
    line = CutToWidth(line, columns - 1);
    if (!colours.empty()) line = absl::StrCat("\033[", colours[i], "m", line, "\033[0m");
    block.push_back(std::move(line));
  }
  if (shown < tasks.size())
    block.push_back(CutToWidth(absl::StrCat("... and ", tasks.size() - shown, " more tasks: millrace status shows all"),
                               columns - 1));
  return block;
}

}  // namespace millrace::launch
