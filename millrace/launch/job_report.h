// The state of a running job, which its launcher reports to `millrace status`.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/tls_credentials.h"
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
  std::string hang = {};   // what the job hangs on; empty if it does not hang
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

  // With the credentials, for the job's socket, which answers to this user only.
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
