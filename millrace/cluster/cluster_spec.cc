#include "millrace/cluster/cluster_spec.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "millrace/graph/device_name.h"
#include "millrace/net/address.h"

namespace millrace {
namespace {

Status CheckJobName(absl::string_view name) {
  if (name.empty()) return InvalidArgument("a job of the cluster has no name");
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') {
      return InvalidArgument("job name '", name, "' has the character '", std::string(1, c),
                             "'; letters, digits and _ are allowed");
    }
  }
  return absl::OkStatus();
}

// A task of a higher index is written as if there were no hole before it: the text would be all semicolons.
constexpr int kMaxHole = 10000;

}  // namespace

std::string TaskId::name() const { return absl::StrCat("/job:", job, "/replica:0/task:", index); }

StatusOr<TaskId> TaskId::Of(absl::string_view name) {
  MR_ASSIGN_OR_RETURN(const DeviceName parsed, DeviceName::Parse(name));
  if (!parsed.job || !parsed.task)
    return InvalidArgument("'", name, "' does not name a task: it needs a job and a task");
  return TaskId{*parsed.job, *parsed.task};
}

StatusOr<ClusterSpec> ClusterSpec::OfTasks(std::map<std::string, Tasks> jobs) {
  if (jobs.empty()) return InvalidArgument("the cluster has no jobs");
  std::map<std::string, std::string> seen;  // address to task
  for (const auto& [job, tasks] : jobs) {
    MR_RETURN_IF_ERROR(CheckJobName(job));
    if (tasks.empty()) return InvalidArgument("job '", job, "' has no tasks");
    for (const auto& [index, address] : tasks) {
      if (index < 0) return InvalidArgument("job '", job, "' has a task with the negative index ", index);
      const StatusOr<net::HostPort> parsed = net::ParseHostPort(address);
      if (!parsed.ok()) return WithPrefix(absl::StrCat("task ", index, " of job '", job, "': "), parsed.status());
      if (parsed->port == 0) continue;  // the system chooses different ports
      const std::string name = TaskId{job, index}.name();
      const auto [it, is_new] = seen.emplace(address, name);
      if (!is_new) return InvalidArgument(it->second, " and ", name, " have the same address ", address);
    }
  }
  ClusterSpec spec;
  spec.jobs_ = std::move(jobs);
  return spec;
}

StatusOr<ClusterSpec> ClusterSpec::Of(const std::map<std::string, std::vector<std::string>>& jobs) {
  std::map<std::string, Tasks> result;
  for (const auto& [job, addresses] : jobs) {
    Tasks& tasks = result[job];
    for (size_t i = 0; i < addresses.size(); ++i) tasks[static_cast<int>(i)] = addresses[i];
  }
  return OfTasks(std::move(result));
}

StatusOr<ClusterSpec> ClusterSpec::Parse(absl::string_view text) {
  if (text.empty()) return InvalidArgument("the cluster spec is empty; write job|host:port;host:port,job|host:port");
  std::map<std::string, Tasks> jobs;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> halves = absl::StrSplit(part, '|');
    if (halves.size() != 2) {
      return InvalidArgument("'", part, "' in the cluster spec is not a job; write job|host:port;host:port");
    }
    const std::string job(absl::StripAsciiWhitespace(halves[0]));
    if (jobs.contains(job)) return InvalidArgument("the cluster spec has the job '", job, "' twice");
    Tasks& tasks = jobs[job];
    const std::vector<absl::string_view> addresses = absl::StrSplit(halves[1], ';');
    for (size_t i = 0; i < addresses.size(); ++i) {
      const absl::string_view address = absl::StripAsciiWhitespace(addresses[i]);
      // Nothing before another address: the job has no task of this index.
      if (address.empty() && i + 1 < addresses.size()) continue;
      tasks[static_cast<int>(i)] = std::string(address);
    }
  }
  return OfTasks(std::move(jobs));
}

std::string ClusterSpec::ToString() const {
  std::vector<std::string> parts;
  for (const auto& [name, tasks] : jobs_) {
    std::vector<std::string> addresses;
    for (const auto& [index, address] : tasks) {
      if (index < kMaxHole) addresses.resize(static_cast<size_t>(index));  // empty where there is no task
      addresses.push_back(address);
    }
    parts.push_back(absl::StrCat(name, "|", absl::StrJoin(addresses, ";")));
  }
  return absl::StrJoin(parts, ",");
}

std::vector<TaskId> ClusterSpec::tasks() const {
  std::vector<TaskId> all;
  for (const auto& [name, tasks] : jobs_) {
    for (const auto& [index, address] : tasks) all.push_back({name, index});
  }
  return all;
}

bool ClusterSpec::Has(const TaskId& task) const {
  const auto job = jobs_.find(task.job);
  return job != jobs_.end() && job->second.contains(task.index);
}

StatusOr<std::string> ClusterSpec::Address(const TaskId& task) const {
  const auto job = jobs_.find(task.job);
  if (job == jobs_.end()) {
    std::vector<std::string> names;
    for (const auto& [name, tasks] : jobs_) names.push_back(name);
    return NotFound("the cluster has no job '", task.job, "'; its jobs are: ", absl::StrJoin(names, ", "));
  }
  const auto found = job->second.find(task.index);
  if (found == job->second.end()) {
    std::vector<int> indices;
    for (const auto& [index, address] : job->second) indices.push_back(index);
    return NotFound("job '", task.job, "' has no task ", task.index, "; its tasks are: ", absl::StrJoin(indices, ", "));
  }
  return found->second;
}

}  // namespace millrace
