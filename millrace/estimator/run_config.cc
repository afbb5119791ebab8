#include "millrace/estimator/run_config.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

constexpr char kLocalEnvironment[] = "local";

bool IsKnownType(const std::string& type) {
  return type == task_type::kChief || type == task_type::kMaster || type == task_type::kWorker ||
         type == task_type::kPs || type == task_type::kEvaluator;
}

int TasksOf(const ClusterSpec& cluster, const std::string& job) {
  const auto it = cluster.jobs().find(job);
  return it == cluster.jobs().end() ? 0 : static_cast<int>(it->second.size());
}

int GlobalId(const TaskConfig& config) {
  const ClusterSpec& cluster = config.cluster;
  std::string chief = task_type::kWorker;
  for (const char* job : {task_type::kChief, task_type::kMaster}) {
    if (TasksOf(cluster, job) > 0) chief = job;
  }
  if (config.task.job == chief) return config.task.index;
  int id = TasksOf(cluster, chief);
  for (const auto& [job, tasks] : cluster.jobs()) {
    if (job == chief || job == task_type::kPs) continue;
    if (job == config.task.job) return id + config.task.index;
    id += static_cast<int>(tasks.size());
  }
  return id + config.task.index;
}

// What a task of a cluster sees, as TensorFlow's Estimator sets it: a worker must not depend on other workers.
std::vector<std::string> DeviceFilters(const TaskId& task) {
  if (task.job == task_type::kWorker) return {"/job:ps", absl::StrCat("/job:worker/task:", task.index)};
  if (task.job == task_type::kPs) return {"/job:ps", "/job:worker", "/job:chief", "/job:master"};
  return {"/job:ps", absl::StrCat("/job:", task.job)};
}

Status Check(const RunConfigOptions& options) {
  if (options.save_checkpoints_steps && options.save_checkpoints_secs)
    return InvalidArgument("RunConfig: give one of save_checkpoints_steps and save_checkpoints_secs, not both");
  const auto not_negative = [](const char* name, int64_t value) {
    return value >= 0 ? absl::OkStatus() : InvalidArgument("RunConfig: ", name, " is ", value);
  };
  MR_RETURN_IF_ERROR(not_negative("save_checkpoints_steps", options.save_checkpoints_steps.value_or(0)));
  MR_RETURN_IF_ERROR(not_negative("save_summary_steps", options.save_summary_steps));
  MR_RETURN_IF_ERROR(not_negative("log_step_count_steps", options.log_step_count_steps));
  MR_RETURN_IF_ERROR(not_negative("keep_checkpoint_max", options.keep_checkpoint_max));
  const auto positive = [](const char* name, absl::Duration time, bool or_zero) {
    const bool ok = time > absl::ZeroDuration() || (or_zero && time == absl::ZeroDuration());
    return ok ? absl::OkStatus() : InvalidArgument("RunConfig: ", name, " is ", absl::FormatDuration(time));
  };
  MR_RETURN_IF_ERROR(
      positive("save_checkpoints_secs", options.save_checkpoints_secs.value_or(absl::ZeroDuration()), true));
  MR_RETURN_IF_ERROR(positive("keep_checkpoint_every", options.keep_checkpoint_every, false));
  return positive("session_creation_timeout", options.session_creation_timeout, false);
}

}  // namespace

RunConfig::RunConfig() : global_id_(0) {
  task_.environment = kLocalEnvironment;
  options_.session_config.emplace();
}

std::string RunConfig::Target(const std::string& master) {
  return master.empty() || absl::StrContains(master, "://") ? master : absl::StrCat("grpc://", master);
}

StatusOr<RunConfig> RunConfig::Of(const TaskConfig& task, RunConfigOptions options) {
  MR_RETURN_IF_ERROR(Check(options));
  RunConfig config;
  config.options_ = std::move(options);
  config.task_ = task;
  if (config.task_.environment.empty()) config.task_.environment = kLocalEnvironment;
  std::string& model_dir = config.options_.model_dir;
  if (model_dir.empty()) model_dir = task.model_dir;
  if (!task.model_dir.empty() && model_dir != task.model_dir) {
    return InvalidArgument("RunConfig: model_dir is ", model_dir, ", but ", task.model_dir, " in TF_CONFIG");
  }
  const std::string& type = task.task.job;
  if (!IsKnownType(type)) {
    return InvalidArgument("TF_CONFIG: task.type is \"", type,
                           "\", which an Estimator has no role for: use chief, master, worker, ps or evaluator");
  }
  if (task.is_evaluator()) {
    config.task_.cluster = ClusterSpec();
    config.global_id_.reset();
    config.master_ = task.session_master;
  } else if (task.cluster.jobs().empty()) {
    if (type != task_type::kWorker || task.task.index != 0) {
      return InvalidArgument("TF_CONFIG: task is ", type, "/", task.task.index,
                             ", but there is no cluster: a program that runs alone is worker/0");
    }
    config.master_ = task.session_master;
  } else {
    const auto tasks = [&](const char* job) { return TasksOf(task.cluster, job); };
    if (tasks(task_type::kChief) + tasks(task_type::kMaster) + tasks(task_type::kWorker) == 0) {
      return InvalidArgument("TF_CONFIG: cluster has no task that trains (chief, master or worker): ",
                             task.cluster.ToString());
    }
    MR_ASSIGN_OR_RETURN(const std::string address, task.cluster.Address(task.task));
    config.master_ = task.session_master.empty() ? address : task.session_master;
    config.global_id_ = GlobalId(task);
  }
  if (!config.options_.session_config) {
    SessionOptions& session = config.options_.session_config.emplace();
    if (config.has_cluster()) {
      session.allow_soft_placement = true;
      session.device_filters = DeviceFilters(task.task);
    }
  }
  return config;
}

StatusOr<RunConfig> RunConfig::Parse(absl::string_view tf_config, RunConfigOptions options) {
  MR_ASSIGN_OR_RETURN(const TaskConfig task, TaskConfig::Parse(tf_config));
  return Of(task, std::move(options));
}

StatusOr<RunConfig> RunConfig::FromEnvironment(RunConfigOptions options) {
  MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> task, TaskConfig::FromEnvironment());
  return Of(task.value_or(TaskConfig()), std::move(options));
}

}  // namespace millrace
