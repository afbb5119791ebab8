// How and where an Estimator runs: the task of this process, by TF_CONFIG, and the settings of its trainings.
//
//   MR_ASSIGN_OR_RETURN(RunConfig config, RunConfig::FromEnvironment({.model_dir = "run", .save_checkpoints_steps =
//   500}));
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "millrace/cluster/task_config.h"
#include "millrace/session/session.h"
#include "millrace/strategy/strategy.h"

namespace millrace {

// The kinds of tasks that an Estimator knows.
namespace task_type {
inline constexpr char kChief[] = "chief";
inline constexpr char kMaster[] = "master";
inline constexpr char kWorker[] = "worker";
inline constexpr char kPs[] = "ps";
inline constexpr char kEvaluator[] = "evaluator";
}  // namespace task_type

// TensorFlow's options and defaults.
struct RunConfigOptions {
  // Where checkpoints and event files are written and read. If empty, that of TF_CONFIG.
  std::string model_dir = {};
  // The seed of the graph; none means other random numbers in each run.
  std::optional<int64_t> tf_random_seed = std::nullopt;
  int64_t save_summary_steps = 100;  // 0: never
  // Give at most one of the two; zero means never. Default: every 600 s.
  std::optional<int64_t> save_checkpoints_steps = std::nullopt;
  std::optional<absl::Duration> save_checkpoints_secs = std::nullopt;
  // See SaverOptions: 0 keeps all.
  int keep_checkpoint_max = 5;
  absl::Duration keep_checkpoint_every = absl::InfiniteDuration();
  // How often steps/s and the loss are logged; 0: never.
  int64_t log_step_count_steps = 100;
  // Of all sessions. By default, with a cluster: soft placement, and filters that let a task see the parameter servers
  // and itself only.
  std::optional<SessionOptions> session_config = std::nullopt;
  // How long to wait for the chief and for servers.
  absl::Duration session_creation_timeout = absl::Seconds(7200);
  // Where the model is trained and evaluated, if not by this task alone with the parameter servers of its cluster.
  std::shared_ptr<Strategy> train_distribute = nullptr;
  std::shared_ptr<Strategy> eval_distribute = nullptr;
};

// Immutable; cheap enough to copy.
class RunConfig {
 public:
  // This process alone, with the defaults, whatever TF_CONFIG says.
  RunConfig();
  // INVALID_ARGUMENT names the part of TF_CONFIG, or the option, that is wrong. Without the variable the process runs
  // alone.
  static StatusOr<RunConfig> FromEnvironment(RunConfigOptions options = {});
  // The text instead of the environment's.
  static StatusOr<RunConfig> Parse(absl::string_view tf_config, RunConfigOptions options = {});
  static StatusOr<RunConfig> Of(const TaskConfig& task, RunConfigOptions options = {});

  // The address of this task, "host4:2222", which is where its sessions run; empty if it runs alone or evaluates, and
  // that of TF_CONFIG's session_master if that is given.
  const std::string& master() const { return master_; }
  // The same as a session's target: "grpc://host4:2222", or "".
  std::string target() const { return Target(master_); }
  // Where evaluations run; empty: in this process.
  const std::string& evaluation_master() const { return task_.eval_session_master; }
  std::string evaluation_target() const { return Target(evaluation_master()); }

  const std::string& task_type() const { return task_.task.job; }
  int task_id() const { return task_.task.index; }
  // The chief initialises, restores and saves: task 0 of job chief or master, or of worker if there is neither.
  bool is_chief() const { return task_.is_chief(); }
  bool is_evaluator() const { return task_.is_evaluator(); }
  // Empty for an evaluator, which is outside of the cluster, and for a process that runs alone.
  const ClusterSpec& cluster_spec() const { return task_.cluster; }
  bool has_cluster() const { return !task_.cluster.jobs().empty(); }
  int num_ps_replicas() const { return task_.num_ps(); }
  // The tasks that train: chief, master and workers. 1 for a process that runs alone, 0 for an evaluator.
  int num_worker_replicas() const { return is_evaluator() ? 0 : task_.num_workers(); }
  // This task's number among those, the chief being 0.
  int worker_index() const { return task_.worker_index(); }
  // A number that no other task of the cluster has: the chief's is 0, then come the other jobs by name, ps last.
  // Nothing for an evaluator.
  std::optional<int> global_id_in_cluster() const { return global_id_; }

  // "local" (the default), "cloud", or "google", where the servers of the cluster are not started by the tasks.
  const std::string& environment() const { return task_.environment; }
  const std::map<std::string, std::string>& service() const { return task_.service; }
  const TaskConfig& task() const { return task_; }

  const std::string& model_dir() const { return options_.model_dir; }
  const SessionOptions& session_config() const { return *options_.session_config; }
  const RunConfigOptions& options() const { return options_; }

 private:
  static std::string Target(const std::string& master);

  TaskConfig task_;
  std::string master_;
  std::optional<int> global_id_;
  RunConfigOptions options_;
};

}  // namespace millrace
