// What a job consists of, as its user says it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// What happens when a task's program fails.
struct RestartPolicy {
  int limit = 0;  // restarts of one task; 0: never
  // Before the first restart; twice as long before each further one, up to a minute.
  absl::Duration pause = absl::Seconds(1);

  absl::Duration Pause(int restarts_before) const;
  // "never", "on-failure" (three restarts), "on-failure:5". INVALID_ARGUMENT says what may stand there.
  static StatusOr<RestartPolicy> Parse(absl::string_view text);
  std::string ToString() const;
};

struct TaskGroup {
  std::string name;  // the job in the cluster's words: "ps", "worker", "chief", "evaluator", any other
  int count = 0;
  RestartPolicy restart = {};
  // Instead of the job's program, where not empty.
  std::vector<std::string> program = {};
  // It serves the others: it is ended when those that do not serve are done.
  bool serves = false;
  // Beside the cluster: it is told of the others, and they not of it. A client, an evaluator, TensorBoard.
  bool side = false;

  // Its tasks are those that train: workers, or chiefs (TensorFlow's older programs: masters).
  bool trains() const;
};

// A machine that tasks run on.
struct Host {
  std::string name;          // as ssh takes it: "host", "user@host", an alias of ~/.ssh/config
  int slots = 1;             // tasks
  std::string address = {};  // where other tasks reach it; empty: the name without its user
  std::string Address() const;
};

struct JobSpec {
  std::vector<TaskGroup> groups = {};
  std::vector<std::string> program = {};  // with its arguments
  std::vector<Host> hosts = {};           // empty: all tasks run on this machine
  absl::Duration grace = absl::Seconds(5);
  // How long a program may be suspended (SIGSTOP) before it counts as failed; infinite: for ever.
  absl::Duration suspend_limit = absl::Seconds(7);
  // Each task that trains gets cores of its own (core_shares.h).
  bool bind_workers = false;

  int task_count() const;
  // INVALID_ARGUMENT with what to change.
  Status Check() const;
};

// One process of the job.
struct TaskName {
  std::string job;
  int index = 0;
  std::string ToString() const { return absl::StrCat(job, "/", index); }
};

// The one of that name, which there is.
const TaskGroup& GroupOf(const JobSpec& job, const std::string& name);

// In the order of the groups; that order gives a task its number.
std::vector<TaskName> TasksOf(const JobSpec& job);
// For each task the index of its host: hosts are filled in order, each up to its slots. RESOURCE_EXHAUSTED when there are too few.
StatusOr<std::vector<int>> PlaceTasks(const JobSpec& job);

// Lines of "host [slots=N] [address=HOST]"; '#' begins a comment. INVALID_ARGUMENT names the line.
StatusOr<std::vector<Host>> ParseHosts(absl::string_view text);

// Splits a command as a shell does, with its quotes and backslashes and nothing else of it.
StatusOr<std::vector<std::string>> SplitCommand(absl::string_view text);

}  // namespace millrace::launch
