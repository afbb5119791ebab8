// The specification of a job, as given by the user.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// What to do when a task's program fails.
struct RestartPolicy {
  int limit = 0;  // the number of restarts per task; 0: never restart
  // The pause before the first restart. It doubles with each further one, up to a minute.
  absl::Duration pause = absl::Seconds(1);

  absl::Duration Pause(int restarts_before) const;
  // "never", "on-failure" (three restarts), "on-failure:5". INVALID_ARGUMENT lists the accepted forms.
  static StatusOr<RestartPolicy> Parse(absl::string_view text);
  std::string ToString() const;
};

struct TaskGroup {
  std::string name;  // the job's name in the cluster: "ps", "worker", "chief", "evaluator" or any other
  int count = 0;
  RestartPolicy restart = {};
  // If not empty, runs instead of the job's program.
  std::vector<std::string> program = {};
  // Its tasks serve the others, so they are stopped when all tasks that do not serve have ended.
  bool serves = false;
  // Its tasks get the cluster's addresses but are not part of the cluster themselves: a client, an evaluator,
  // TensorBoard.
  bool side = false;

  // Whether its tasks train: workers, chiefs, and the masters of older TensorFlow programs.
  bool trains() const;
};

// A machine that tasks run on.
struct Host {
  std::string name;          // what ssh accepts: "host", "user@host", an alias of ~/.ssh/config
  int slots = 1;             // the number of tasks it takes
  std::string address = {};  // under which other tasks reach it; empty: the name without the user
  std::string Address() const;
};

struct JobSpec {
  std::vector<TaskGroup> groups = {};
  std::vector<std::string> program = {};  // with its arguments
  std::vector<Host> hosts = {};           // empty: all tasks run on this machine
  absl::Duration grace = absl::Seconds(5);
  // How long a program may be suspended (SIGSTOP) before it counts as failed; may be infinite.
  absl::Duration suspend_limit = absl::Seconds(7);
  // Binds each task that trains to cores of its own (core_shares.h).
  bool bind_workers = false;

  int task_count() const;
  // INVALID_ARGUMENT says what to change.
  Status Check() const;
};

// One process of the job.
struct TaskName {
  std::string job;
  int index = 0;
  std::string ToString() const { return absl::StrCat(job, "/", index); }
};

// The group of that name, which must exist.
const TaskGroup& GroupOf(const JobSpec& job, const std::string& name);

// All tasks, in the order of the groups. A task's number is its position here.
std::vector<TaskName> TasksOf(const JobSpec& job);
// For each task, the index of its host. Hosts are filled in order, each up to its slots. RESOURCE_EXHAUSTED if there
// are too few slots.
StatusOr<std::vector<int>> PlaceTasks(const JobSpec& job);

// Lines of "host [slots=N] [address=HOST]"; '#' begins a comment. Also reads the host files of Open MPI ("host slots=4
// max_slots=8"), MPICH ("host:4") and PBS (a host once for each slot). INVALID_ARGUMENT names the line.
StatusOr<std::vector<Host>> ParseHosts(absl::string_view text);

// Splits a command into words like a shell. Understands quotes and backslashes, but no other shell syntax.
StatusOr<std::vector<std::string>> SplitCommand(absl::string_view text);

}  // namespace millrace::launch
