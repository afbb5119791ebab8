// How a task learns its place in the cluster: TF_CONFIG, flags, placeholders in its arguments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/launch/job_spec.h"

namespace millrace::launch {

// The addresses of all tasks of the cluster, "host:port", by job and in order.
using ClusterAddresses = std::map<std::string, std::vector<std::string>>;

// {"cluster": {"ps": [...], "worker": [...]}, "task": {"type": "worker", "index": 0}}, as TensorFlow reads it.
std::string TfConfig(const ClusterAddresses& cluster, const TaskName& task);

// --ps_hosts=a:1,b:2 and so on for each job, --job_name, --task_index.
std::vector<std::string> HostFlags(const ClusterAddresses& cluster, const TaskName& task);

// Substitutes {ps_hosts}, {worker_hosts}, {JOB_hosts}, {cluster_spec}, {job_name}, {task_index} and the task's own
// {address} and {port} in the arguments. Other braces are left alone.
std::vector<std::string> FillIn(const std::vector<std::string>& arguments, const ClusterAddresses& cluster,
                                const TaskName& task, const std::string& address);

}  // namespace millrace::launch
