// The state of a running job, which its launcher reports to `millrace status`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/tls_credentials.h"
#include "millrace/launch/job_events.h"
#include "millrace/launch/supervision.h"
#include "millrace/launch/task_board.h"

namespace millrace::launch {

struct JobReport {
  int64_t pid = 0;  // the launcher's
  std::string command = {};
  std::string directory = {};
  RunState state = RunState::kPending;
  double seconds = 0;      // since the launch
  std::string cause = {};  // why the job is being ended
  // Once the job has ended: the launcher's last line, and its exit code.
  std::string verdict = {};
  std::optional<int> exit_code = {};
  std::string hang = {};  // what the job hangs on; empty if it does not hang
  std::vector<std::string> waits = {};
  // A client's, for questions to the tasks: `millrace status --target` uses them. Not for printing.
  std::optional<TlsCredentials> credentials = {};
  struct Task {
    std::string task = {}, state = {}, host = {}, address = {}, phase = {};
    std::string cores = {};  // the cores it is bound to, "0-3"; empty: not bound
    int64_t pid = 0;
    int restarts = 0;
    double seconds_in_state = 0;
    std::optional<int64_t> step = {};
    std::optional<double> loss = {}, steps_per_second = {};
    std::optional<int> exit_code = {};  // of the last program that ended, as a shell reports it
  };
  std::vector<Task> tasks = {};
  // The newest checkpoint that a task has reported as whole.
  struct Checkpoint {
    std::string task = {};
    int64_t step = 0;
    double age_seconds = 0;
  };
  std::optional<Checkpoint> checkpoint = {};
  std::vector<JobEvent> events = {};  // oldest first
  // The end of each task's output, by its name; in the last report of a job only.
  std::map<std::string, std::string> outputs = {};

  // With the credentials, for the job's socket, which answers to this user only. A number that is not finite, such as a
  // loss, is the text "NaN", "Infinity" or "-Infinity".
  std::string ToJson() const;
  // What ToJson returned, for printing.
  static std::string WithoutCredentials(absl::string_view json);
  // Accepts any bytes; INVALID_ARGUMENT if they are not a report.
  static StatusOr<JobReport> FromJson(absl::string_view text);
  // A human-readable table; ends with a newline.
  std::string ToText() const;
};

JobReport::Task ReportTask(const TaskRecord& record, const Training& training, const std::string& host,
                           const std::string& address, absl::Time now);

}  // namespace millrace::launch
