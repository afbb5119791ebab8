// Which task of which cluster this process is, from the environment variable TF_CONFIG:
//
//   {"cluster": {"ps": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "task": {"type": "worker", "index": 0}}
//
// `millrace launch` sets it for the programs that it starts, and so does everything that starts TensorFlow's clusters.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/cluster/cluster_spec.h"

namespace millrace {

struct TaskConfig {
  // Empty for a program that runs alone.
  ClusterSpec cluster = {};
  TaskId task = {.job = "worker", .index = 0};

  // The one that initialises, restores and saves: task 0 of the jobs "chief" and "master", or of "worker" where there is neither.
  bool is_chief() const;
  // Looks at checkpoints; may be outside of the cluster.
  bool is_evaluator() const { return task.job == "evaluator"; }
  bool is_ps() const { return task.job == "ps"; }
  int num_ps() const { return NumTasks("ps"); }
  // All that train: chief, master and workers.
  int num_workers() const;
  // Among those, from 0: the chief first. 0 for a program that runs alone.
  int worker_index() const;

  // From the text of TF_CONFIG, by TensorFlow's rules: a job's tasks are a list of addresses or an object {"0": address}; an index may be a number or the text of one; a task of a
  // cluster is one of it, but for an evaluator; without a cluster a program runs alone; what else there may be is left alone. INVALID_ARGUMENT says which part is wrong.
  static StatusOr<TaskConfig> Parse(absl::string_view json);
  // Of this process; nothing when the variable is not set or empty.
  static StatusOr<std::optional<TaskConfig>> FromEnvironment();

 private:
  int NumTasks(const std::string& job) const;
};

inline constexpr char kTaskConfigVariable[] = "TF_CONFIG";

}  // namespace millrace
