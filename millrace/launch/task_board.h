// The progress of each task's training, and how it is displayed.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/launch/supervision.h"
#include "millrace/train/progress.h"

namespace millrace::launch {

// Step, loss and speed of one task.
class Training {
 public:
  // `told` says that it comes from the program's progress lines. Once there were any, progress parsed from the
  // program's output is ignored.
  void Add(const TrainingProgress& progress, bool told, absl::Time now);
  // The program was restarted.
  void Restart();

  std::optional<int64_t> step() const { return step_; }
  std::optional<double> loss() const { return loss_; }
  // The step of the newest checkpoint that the task has reported as whole, and when it did.
  std::optional<int64_t> checkpoint() const { return checkpoint_; }
  absl::Time checkpoint_at() const { return checkpoint_at_; }
  const std::string& phase() const { return phase_; }
  // Whether the phase is a wait.
  bool waits() const { return waits_; }
  absl::Time phase_since() const { return phase_since_; }
  // Measured over the last seconds; nullopt before the second step.
  std::optional<double> steps_per_second(absl::Time now) const;
  // When the step last increased; InfinitePast if it never did.
  absl::Time last_step() const { return last_step_; }
  // The longest time between two increases.
  absl::Duration longest_step() const { return longest_step_; }

 private:
  struct Sample {
    absl::Time at;
    int64_t step;
  };
  bool told_ = false;
  std::optional<int64_t> step_;
  std::optional<double> loss_;
  std::optional<int64_t> checkpoint_;
  absl::Time checkpoint_at_ = absl::InfinitePast();
  std::string phase_;
  bool waits_ = false;
  absl::Time phase_since_ = absl::InfinitePast();
  std::deque<Sample> samples_;
  absl::Time last_step_ = absl::InfinitePast();
  absl::Duration longest_step_ = absl::ZeroDuration();
};

// One row of the table of tasks, as text. `host` is empty for this machine, `cores` for a task that is not bound.
struct TaskRow {
  std::string task = {}, state = {}, pid = {}, host = {}, step = {}, loss = {}, rate = {}, restarts = {}, since = {},
              cores = {}, phase = {};
};
TaskRow RowOf(const TaskRecord& record, const Training& training, const std::string& host, absl::Time now);

// "2.3 s", "5.2 min", "3.1 h".
std::string ShortAge(absl::Duration age);

// The status block at the bottom of a terminal: a line for each task, as far as `rows` suffice.
std::vector<std::string> StatusBlock(const std::vector<TaskRow>& tasks, const std::vector<int>& colours, int rows,
                                     int columns);

// The ANSI (SGR) colour of a task.
int TaskColour(int task);

}  // namespace millrace::launch
