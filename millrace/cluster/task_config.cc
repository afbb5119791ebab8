#include "millrace/cluster/task_config.h"

#include <cstdlib>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr int kMaxIndex = 1 << 20;
// Deeper values are not printed, since that would need as deep a stack.
constexpr int kMaxDepth = 16;

template <typename... What>
Status Wrong(const What&... what) {
  return InvalidArgument(kTaskConfigVariable, ": ", what...);
}

// The value as it was written, truncated if it is long.
std::string Text(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = absl::StrCat(text.substr(0, 77), "...");
  return text;
}

StatusOr<int> Index(const Json& value, absl::string_view where) {
  int64_t index = -1;
  const bool number = value.is_number_integer();
  if (number)
    index = value.is_number_unsigned() && value.get<uint64_t>() > kMaxIndex ? kMaxIndex + 1 : value.get<int64_t>();
  const bool text = value.is_string() && absl::SimpleAtoi(value.get_ref<const std::string&>(), &index);
  if ((!number && !text) || index < 0 || index > kMaxIndex)
    return Wrong(where, " is ", Text(value), ", not the number of a task");
  return static_cast<int>(index);
}

StatusOr<std::string> Address(const Json& value, absl::string_view where) {
  if (!value.is_string()) return Wrong(where, " is ", Text(value), ", not an address as in \"host:2222\"");
  return value.get<std::string>();
}

StatusOr<ClusterSpec::Tasks> Tasks(const std::string& job, const Json& value) {
  ClusterSpec::Tasks tasks;
  const std::string where = absl::StrCat("cluster.", job);
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      MR_ASSIGN_OR_RETURN(tasks[static_cast<int>(i)], Address(value[i], absl::StrCat(where, "[", i, "]")));
    }
  } else if (value.is_object()) {
    for (const auto& [key, address] : value.items()) {
      MR_ASSIGN_OR_RETURN(const int index, Index(Json(key), absl::StrCat("a key of ", where)));
      MR_ASSIGN_OR_RETURN(tasks[index], Address(address, absl::StrCat(where, ".", key)));
    }
  } else {
    return Wrong(where, " is ", Text(value), ", not a list of addresses");
  }
  if (tasks.empty()) return Wrong(where, " has no tasks");
  return tasks;
}

StatusOr<ClusterSpec> Cluster(const Json& value) {
  if (!value.is_object())
    return Wrong("cluster is ", Text(value), ", not an object of jobs as in {\"worker\": [\"host:2222\"]}");
  std::map<std::string, ClusterSpec::Tasks> jobs;
  for (const auto& [job, tasks] : value.items()) {
    MR_ASSIGN_OR_RETURN(jobs[job], Tasks(job, tasks));
  }
  if (jobs.empty()) return ClusterSpec();
  StatusOr<ClusterSpec> cluster = ClusterSpec::OfTasks(std::move(jobs));
  if (!cluster.ok()) return Wrong("cluster: ", cluster.status().message());
  return cluster;
}

// The members that are neither the cluster nor the task.
Status ReadOthers(const Json& json, TaskConfig* config) {
  const auto read = [&](const char* name, std::string* text) -> Status {
    if (!json.contains(name) || json[name].is_null()) return absl::OkStatus();
    if (!json[name].is_string()) return Wrong(name, " is ", Text(json[name]), ", not a string");
    *text = json[name].get<std::string>();
    return absl::OkStatus();
  };
  MR_RETURN_IF_ERROR(read("environment", &config->environment));
  MR_RETURN_IF_ERROR(read("model_dir", &config->model_dir));
  MR_RETURN_IF_ERROR(read("session_master", &config->session_master));
  MR_RETURN_IF_ERROR(read("eval_session_master", &config->eval_session_master));
  if (!json.contains("service") || json["service"].is_null()) return absl::OkStatus();
  if (!json["service"].is_object()) return Wrong("service is ", Text(json["service"]), ", not an object");
  for (const auto& [name, value] : json["service"].items()) {
    config->service[name] =
        value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return absl::OkStatus();
}

}  // namespace

int TaskConfig::NumTasks(const std::string& job) const {
  const auto it = cluster.jobs().find(job);
  return it == cluster.jobs().end() ? 0 : static_cast<int>(it->second.size());
}

int TaskConfig::num_workers() const { return std::max(1, NumTasks("chief") + NumTasks("master") + NumTasks("worker")); }

int TaskConfig::worker_index() const {
  return task.job == "worker" ? NumTasks("chief") + NumTasks("master") + task.index : task.index;
}

bool TaskConfig::is_chief() const {
  if (task.job == "chief" || task.job == "master") return task.index == 0;
  return task.job == "worker" && task.index == 0 && NumTasks("chief") + NumTasks("master") == 0;
}

StatusOr<TaskConfig> TaskConfig::Parse(absl::string_view text) {
  bool too_deep = false;
  const auto keep = [&](int depth, Json::parse_event_t, const Json&) {
    too_deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  const Json json = Json::parse(text.begin(), text.end(), keep, /*allow_exceptions=*/false);
  if (too_deep) return Wrong("it is nested more than ", kMaxDepth, " deep");
  if (json.is_discarded()) return Wrong("'", text.substr(0, 80), text.size() > 80 ? "...'" : "'", " is not JSON");
  if (!json.is_object()) return Wrong(Text(json), " is not an object with \"cluster\" and \"task\"");
  TaskConfig config;
  MR_RETURN_IF_ERROR(ReadOthers(json, &config));
  if (json.contains("cluster") && !json["cluster"].is_null()) {
    MR_ASSIGN_OR_RETURN(config.cluster, Cluster(json["cluster"]));
  }
  const bool alone = config.cluster.jobs().empty();
  const Json none = Json::object();
  const Json& task = json.contains("task") && !json["task"].is_null() ? json["task"] : none;
  if (!task.is_object()) return Wrong("task is ", Text(task), ", not an object with \"type\" and \"index\"");
  if (task.contains("type")) {
    if (!task["type"].is_string() || task["type"].get_ref<const std::string&>().empty())
      return Wrong("task.type is ", Text(task["type"]), ", not the name of a job");
    config.task.job = task["type"].get<std::string>();
  } else if (!alone) {
    return Wrong("task.type is missing: which job of the cluster is this process of?");
  }
  if (task.contains("index")) {
    MR_ASSIGN_OR_RETURN(config.task.index, Index(task["index"], "task.index"));
  } else if (!alone) {
    return Wrong("task.index is missing: which task of job '", config.task.job, "' is this process?");
  }
  if (alone) {
    if (config.task.index != 0)
      return Wrong("task.index is ", config.task.index,
                   ", but there is no cluster: a program that runs alone is task 0");
    return config;
  }
  // An evaluator may be outside of the cluster.
  const bool outside = config.is_evaluator() && config.cluster.jobs().count("evaluator") == 0;
  for (const char* one : {"chief", "master"}) {
    if (config.NumTasks(one) > 1)
      return Wrong("cluster.", one, " has ", config.NumTasks(one), " tasks; there can be only one");
  }
  if (outside) return config;
  if (const StatusOr<std::string> address = config.cluster.Address(config.task); !address.ok()) {
    return Wrong("task: ", address.status().message());
  }
  return config;
}

StatusOr<std::optional<TaskConfig>> TaskConfig::FromEnvironment() {
  const char* const text = std::getenv(kTaskConfigVariable);
  if (text == nullptr || *text == '\0') return std::optional<TaskConfig>();
  MR_ASSIGN_OR_RETURN(TaskConfig config, Parse(text));
  return std::optional<TaskConfig>(std::move(config));
}

}  // namespace millrace
