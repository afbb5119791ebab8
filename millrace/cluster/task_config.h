// The cluster and the task of this process, from the environment variable TF_CONFIG:
//
//   {"cluster": {"ps": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "task": {"type": "worker", "index": 0}}
//
// `millrace launch` sets it for the programs that it starts, as do other launchers of TensorFlow clusters.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/cluster/cluster_spec.h"

namespace millrace {

struct TaskConfig {
  // Empty for a program that runs without a cluster.
  ClusterSpec cluster = {};
  TaskId task = {.job = "worker", .index = 0};
  // Members that only some programs read; each empty if it is not there.
  std::string environment = {};                     // "cloud"; "google" has servers that others started
  std::map<std::string, std::string> service = {};  // what a platform adds; values that are not strings, as JSON
  std::string model_dir = {};
  std::string session_master = {};       // the target of sessions, instead of this task's own
  std::string eval_session_master = {};  // of those that evaluate

  // The chief initialises, restores and saves. It is task 0 of the job "chief" or "master", or of "worker" if there is
  // neither.
  bool is_chief() const;
  // An evaluator reads checkpoints; it may be outside of the cluster.
  bool is_evaluator() const { return task.job == "evaluator"; }
  bool is_ps() const { return task.job == "ps"; }
  int num_ps() const { return NumTasks("ps"); }
  // The number of tasks that train: chief, master and workers.
  int num_workers() const;
  // This task's index among those, the chief being 0. 0 without a cluster.
  int worker_index() const;

  // Parses the text of TF_CONFIG by TensorFlow's rules: a job's tasks are a list of addresses or an object {"0":
  // address}; an index may be a number or a string; the task must be part of the cluster unless it is an evaluator;
  // there may be no cluster; members of other names are ignored. INVALID_ARGUMENT says which part is wrong.
  static StatusOr<TaskConfig> Parse(absl::string_view json);
  // The configuration of this process; nullopt if the variable is not set or empty.
  static StatusOr<std::optional<TaskConfig>> FromEnvironment();

 private:
  int NumTasks(const std::string& job) const;
};

inline constexpr char kTaskConfigVariable[] = "TF_CONFIG";

}  // namespace millrace
