// ClusterSpec as TensorFlow's message.
#include <map>
#include <string>
#include <utility>

#include "millrace/cluster/cluster_spec.h"

namespace millrace {

StatusOr<ClusterSpec> ClusterSpec::FromDef(const pb::ClusterDef& def) {
  std::map<std::string, Tasks> jobs;
  for (const pb::JobDef& job : def.job()) {
    if (jobs.contains(job.name())) return InvalidArgument("the cluster has the job '", job.name(), "' twice");
    Tasks& tasks = jobs[job.name()];
    for (const auto& [index, address] : job.tasks()) tasks[index] = address;
  }
  return OfTasks(std::move(jobs));
}

pb::ClusterDef ClusterSpec::ToDef() const {
  pb::ClusterDef def;
  for (const auto& [name, tasks] : jobs_) {
    pb::JobDef* job = def.add_job();
    job->set_name(name);
    for (const auto& [index, address] : tasks) (*job->mutable_tasks())[index] = address;
  }
  return def;
}

}  // namespace millrace
