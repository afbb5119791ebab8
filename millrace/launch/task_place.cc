#include "millrace/launch/task_place.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace millrace::launch {

std::string TfConfig(const ClusterAddresses& cluster, const TaskName& task) {
  nlohmann::json config = {{"cluster", cluster}, {"task", {{"type", task.job}, {"index", task.index}}}};
  return config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> HostFlags(const ClusterAddresses& cluster, const TaskName& task) {
  std::vector<std::string> flags;
  for (const auto& [job, addresses] : cluster)
    flags.push_back(absl::StrCat("--", job, "_hosts=", absl::StrJoin(addresses, ",")));
  flags.push_back(absl::StrCat("--job_name=", task.job));
  flags.push_back(absl::StrCat("--task_index=", task.index));
  return flags;
}

std::vector<std::string> FillIn(const std::vector<std::string>& arguments, const ClusterAddresses& cluster,
                                const TaskName& task, const std::string& address) {
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<std::string> jobs;
  for (const auto& [job, addresses] : cluster) {
    values.emplace_back(absl::StrCat("{", job, "_hosts}"), absl::StrJoin(addresses, ","));
    jobs.push_back(absl::StrCat(job, "|", absl::StrJoin(addresses, ";")));
  }
  values.emplace_back("{cluster_spec}", absl::StrJoin(jobs, ","));
  values.emplace_back("{job_name}", task.job);
  values.emplace_back("{task_index}", absl::StrCat(task.index));
  values.emplace_back("{address}", address);
  values.emplace_back("{port}", address.substr(address.rfind(':') + 1));
  std::vector<std::string> filled;
  filled.reserve(arguments.size());
  for (const std::string& argument : arguments) filled.push_back(absl::StrReplaceAll(argument, values));
  return filled;
}

}  // namespace millrace::launch
