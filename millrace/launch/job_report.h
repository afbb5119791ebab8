// A running job, as its launcher tells it to `millrace status`.
#pragma once

#include <string>
#include <vector>

#include "millrace/launch/supervision.h"
#include "millrace/launch/task_board.h"

namespace millrace::launch {

struct JobReport {
  int64_t pid = 0;  // of the launcher
  std::string command = {};
  std::string directory = {};
  RunState state = RunState::kPending;
  double seconds = 0;  // since the launch
  std::string cause = {};  // why it is being ended
  std::string hang = {};   // what it hangs on, when it does
  std::vector<std::string> waits = {};
  struct Task {
    std::string task = {}, state = {}, host = {}, address = {}, phase = {};
    std::string cores = {};  // its own, "0-3"; empty: it runs anywhere
    int64_t pid = 0;
    int restarts = 0;
    double seconds_in_state = 0;
    std::optional<int64_t> step = {};
    std::optional<double> loss = {}, steps_per_second = {};
    std::optional<int> exit_code = {};  // of the last program that ended, as a shell gives it
  };
  std::vector<Task> tasks = {};

  std::string ToJson() const;
  // Bytes from another process: INVALID_ARGUMENT when they are no report.
  static StatusOr<JobReport> FromJson(absl::string_view text);
  // A table for people; ends with a newline.
  std::string ToText() const;
};

JobReport::Task ReportTask(const TaskRecord& record, const Training& training, const std::string& host, const std::string& address, absl::Time now);

}  // namespace millrace::launch
